"""Support for SoS notebooks: ``language`` runs in SoS, ``kernel_side`` in the ciao kernel."""
