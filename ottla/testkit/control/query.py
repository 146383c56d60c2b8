"""Numbers in the query of a request to an admin port. pure"""

from ottla.broker.admin.routes import AdminError, AdminRequest


def number(request: AdminRequest, name: str, default: int = 0) -> int:
    """The whole number of this name; AdminError 400."""
    given = request.query.get(name, str(default))
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise AdminError(400, f"{name} is a whole number, not {given:.50}")
    return int(given)
