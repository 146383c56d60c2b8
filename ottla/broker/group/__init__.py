"""The group coordinator: states, machine, shell, log, offsets."""
