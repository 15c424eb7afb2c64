"""The home in SoS notebooks: ``language`` runs in SoS, ``inside`` in the ciao kernel."""
