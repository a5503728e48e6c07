"""Reports and exports of NVIDIA Nsight Systems: a module per format, and what they share."""
