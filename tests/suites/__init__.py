"""How the tests are parted and run: tiers, what runs side by side, what a run tells (README.md)."""
