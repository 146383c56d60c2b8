"""`python -m ottla`: the command without its script on the path. free"""

from ottla.cli.main import main

if __name__ == "__main__":
    main()
