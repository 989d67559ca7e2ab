"""Facts about models and devices, each with its source; nothing here is measured or guessed."""
