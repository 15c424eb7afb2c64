"""Jobs on a cluster: TFJob and PyTorchJob of the Kubeflow training operator."""
