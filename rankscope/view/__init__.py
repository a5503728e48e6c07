"""Interactive views: the served page, and the GUI of Nsight Systems."""
