"""Read the names in a certificate, and compare them with those of its replacement. pure

Only the subject and the alternative names are read, from DER (RFC 5280, section 4.1): Python's `ssl` reads these only
of a peer's certificate. The certificate is the operator's, and OpenSSL has accepted it before.

Source: `SslFactory.CertificateEntries` of Kafka 4.3.1, KIP-978.
"""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final, NamedTuple

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_LONG: Final = 0x80
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")
_BEFORE_SUBJECT: Final = 4
"""Number of fields before the subject: serial number, signature algorithm, issuer, validity."""
_ATTRIBUTES: Final = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640101"): "UID",
    bytes.fromhex("0992268993f22c640119"): "DC",
}
_NAMES: Final = {0x81: "email", 0x82: "DNS", 0x86: "URI"}
_ADDRESS: Final = 0x87
_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x1E: "utf-16-be"}

_STRINGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_ESCAPED: Final = {letter: f"\\{letter}" for letter in ',=+<>#;"\\'} | {"\0": r"\00"}
_BLANKS: Final = " \r"


class CertificateEntry(NamedTuple):
    """Names of a certificate, as text."""

    dn: tuple[str, ...]
    """Parts of the subject as TYPE=VALUE, the last first, as in RFC 2253."""
    san: frozenset[str]
    """Alternative names, such as `DNS:broker` and `IP:127.0.0.1`."""


class _Field(NamedTuple):
    tag: int
    content: bytes


def certificate_entry(der: bytes) -> CertificateEntry:
    """Return the names of a certificate. Raises ValueError if the data is not a certificate."""
    try:
        fields = _signed_fields(der)
        extensions = next((field for field in fields if field.tag == _EXTENSIONS), None)
        san = () if extensions is None else _alternative_names(extensions)
        return CertificateEntry(tuple(_dn(fields[_BEFORE_SUBJECT])), frozenset(san))
    except IndexError:
        raise ValueError("a certificate that is cut short") from None


def distinguished_name(der: bytes) -> str:
    """Return the subject of a certificate as Java's `X500Principal.getName` writes it (RFC 2253). Raises ValueError.

    Java decodes all strings as UTF-8, whatever their type, so the principals in Kafka's ACLs are decoded like this.
    """
    try:
        return written_name(_signed_fields(der)[_BEFORE_SUBJECT].content)
    except IndexError:
        raise ValueError("a certificate that is cut short") from None


def written_name(content: bytes) -> str:
    """Return the content of a `Name` as text, in the same form."""
    relative = [map(_written, _fields(together.content)) for together in _fields(content)]
    return ",".join("+".join(attributes) for attributes in reversed(relative))


def _written(attribute: _Field) -> str:
    kind, value = _fields(attribute.content)
    keyword = _ATTRIBUTES.get(kind.content)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or _format_oid(kind.content)}=#{_encode(value).hex()}"
    escaped = "".join(_ESCAPED.get(letter, letter) for letter in value.content.decode("utf-8", "replace"))
    text = escaped.lstrip(_BLANKS)
    blanks = escaped[: len(escaped) - len(text)]
    within = text.rstrip(_BLANKS)
    return f"{keyword}={_escape_each(blanks)}{within}{_escape_each(text[len(within) :])}"


def _escape_each(blanks: str) -> str:
    return "".join(f"\\{blank}" for blank in blanks)


def _encode(field: _Field) -> bytes:
    size = len(field.content)
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([field.tag, size] if size < _LONG else [field.tag, _LONG + len(length), *length]) + field.content


def _format_oid(identifier: bytes) -> str:
    numbers = [0]
    for byte in identifier:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if byte < _LONG:
            numbers.append(0)
    first, *others = numbers[:-1]
    return ".".join(map(str, (min(first // 40, 2), first - 40 * min(first // 40, 2), *others)))


def _dn(subject: _Field) -> Iterator[str]:
    for together in reversed([*_fields(subject.content)]):
        attributes = []
        for attribute in _fields(together.content):
            kind, value = _fields(attribute.content)
            attributes.append(f"{_ATTRIBUTES.get(kind.content, kind.content.hex())}={_text(value)}")
        yield "+".join(sorted(attributes))


def _alternative_names(extensions: _Field) -> Iterator[str]:
    (each,) = _fields(extensions.content)
    for extension in _fields(each.content):
        kind, *_, value = _fields(extension.content)
        if kind.content == _ALTERNATIVE_NAMES:
            (names,) = _fields(value.content)
            yield from map(_general_name, _fields(names.content))


def _general_name(name: _Field) -> str:
    if name.tag == _ADDRESS:
        return f"IP:{ip_address(name.content)}"
    kind = _NAMES.get(name.tag)
    return f"{name.tag:02x}:{name.content.hex()}" if kind is None else f"{kind}:{name.content.decode('ascii')}"


def _text(value: _Field) -> str:
    encoding = _ENCODINGS.get(value.tag)
    return value.content.hex() if encoding is None else " ".join(value.content.decode(encoding).split())


def _signed_fields(der: bytes) -> list[_Field]:
    """Return the fields of a certificate that its signature covers, without the version."""
    certificate, _ = _field(der, 0)
    signed, _ = _field(certificate.content, 0)
    return [field for field in _fields(signed.content) if field.tag != _VERSION]


def _fields(content: bytes) -> Iterator[_Field]:
    at = 0
    while at < len(content):
        found, at = _field(content, at)
        yield found


def _field(data: bytes, at: int) -> tuple[_Field, int]:
    """Return the field that begins at `at`, and the position of the next one."""
    tag, size = data[at], data[at + 1]
    at += 2
    if size >= _LONG:
        size_bytes = size - _LONG
        size = int.from_bytes(data[at : at + size_bytes], "big")
        at += size_bytes
    if at + size > len(data):
        raise ValueError("a certificate that is cut short")
    return _Field(tag, data[at : at + size]), at + size


def why_not(before: CertificateEntry, after: CertificateEntry, *, dn_may_change: bool, san_may_change: bool) -> str:
    """Return the reason why a certificate must not replace another, or an empty string. It may add alternative
    names."""
    if not dn_may_change and [part.casefold() for part in before.dn] != [part.casefold() for part in after.dn]:
        return (
            f"Keystore DistinguishedName does not match: existing={{DN={','.join(before.dn)}}}, "
            f"new={{DN={','.join(after.dn)}}} (ssl.allow.dn.changes=true allows that)"
        )
    if not san_may_change and not after.san >= before.san:
        return (
            f"Keystore SubjectAltNames do not match: existing={{SAN={sorted(before.san)}}}, "
            f"new={{SAN={sorted(after.san)}}} (ssl.allow.san.changes=true allows that)"
        )
    return ""
