"""`ottla ctl`: what a running broker is asked and told over its admin port."""
