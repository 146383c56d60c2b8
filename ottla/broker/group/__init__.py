"""The group coordinator: group states, the group itself, its log and its offsets."""
