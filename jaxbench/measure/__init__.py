"""What happens on devices: calibration, timing, and the records of both."""
