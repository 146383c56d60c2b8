"""How long a test waits for what must come. It ends a hang: a busy machine takes a minute to start a broker."""

PATIENCE_S = 300
