"""One outside world per file; every driver raises DriverError only and holds no policy."""
