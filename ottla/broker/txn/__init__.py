"""The transaction coordinator: states, machine, shell, log, markers."""
