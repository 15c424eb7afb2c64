"""The model of mixed.ipynb, in a module of its own beside the notebook."""

import torch


class DigitsNet(torch.nn.Module):
    """Two layers that tell the 8x8 pictures of ten digits apart."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return a score for each digit."""
        return self.layers(images)
