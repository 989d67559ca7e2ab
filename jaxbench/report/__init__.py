"""What people read: tables now, figures and pages later; made from records only."""
