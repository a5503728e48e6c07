"""A person looks: the page, served, and the GUI of Nsight Systems."""
