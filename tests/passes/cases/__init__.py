"""For each pattern of the compiler: models in which it must be found, and models in which it must not."""
