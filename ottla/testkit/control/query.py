"""Numbers in the query string of an admin port request. pure"""

from ottla.admin.routes import AdminError, AdminRequest


def number(request: AdminRequest, name: str, default: int = 0) -> int:
    """Return the whole number of this query parameter. Raises AdminError 400 for other values."""
    given = request.query.get(name, str(default))
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise AdminError(400, f"{name} must be a whole number, not {given:.50}")
    return int(given)
