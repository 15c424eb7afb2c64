"""Files through a bucket: addresses that are signed here, so that no pod has credentials."""
