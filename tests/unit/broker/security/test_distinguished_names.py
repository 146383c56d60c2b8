"""Names in certificates, in the format of Java 17: `new X500Principal(der).getName()` printed each of them."""

import ssl

import pytest

from ottla.broker.security.certificates import distinguished_name, written_name

BY_JAVA = [
    (
        "302d310b3009060355040613024445310e300c060355040a0c054f74746c61310e300c06035504030c05616c696365",
        "CN=alice,O=Ottla,C=DE",
    ),
    (
        "304531133011060a0992268993f22c6401191603636f6d31173015060a0992268993f22c64011916076578616d706c6531153013060a0992268993f22c6401010c05616c696365",
        "UID=alice,DC=example,DC=com",
    ),
    ("301e311c301a06035504030c13612c622b6322645c653c663e673b683d69236a", 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
    (
        "3044310e300c06035504030c05236c6561643119301706035504030c10206c65616420616e6420747261696c203117301506035504030c0e202074776f2020696e6e65722020",
        "CN=\\ \\ two  inner\\ \\ ,CN=\\ lead and trail\\ ,CN=\\#lead",
    ),
    (
        "30363113301106035504030c0a5a6fc3ab204772c3bc6e310c300a060355040314035a6feb3111300f06035504031e08017b00f301420077",
        "CN=\x01{\\00�\x01B\\00w,CN=Zo�,CN=Zoë Grün",
    ),
    (
        "30323120301e06092a864886f70d0109011611616c696365406578616d706c652e636f6d310e300c06035504030c05616c696365",
        "CN=alice,1.2.840.113549.1.9.1=#1611616c696365406578616d706c652e636f6d",
    ),
    (
        "302b311c300c06035504040c05536d697468300c06035504030c05616c696365310b3009060355040c0c024472",
        "2.5.4.12=#0c024472,2.5.4.4=#0c05536d697468+CN=alice",
    ),
    ("3020311e3008060355040b0c0162300806035504030c016130080603550407130163", "OU=b+CN=a+L=c"),
    (
        "303c310f300d06035504090c064d61696e20313110300e06035504080c0742617661726961310b3009060355040513023432310a3008060355042a0c0141",
        "2.5.4.42=#0c0141,2.5.4.5=#13023432,ST=Bavaria,STREET=Main 1",
    ),
    (
        "30273112301006092b06010401868d1f010c036f776e3111300f06092b06010401868d1f02030200ff",
        "1.3.6.1.4.1.99999.2=#030200ff,1.3.6.1.4.1.99999.1=#0c036f776e",
    ),
    ("300b3109300706035504030c00", "CN="),
    ("300e310c300a06035504030c03202020", "CN=\\ \\ \\ "),
    ("30173115301306035504030c0c746162096e65770a6c696e65", "CN=tab\tnew\nline"),
    ("3011310f300d06035504030c066e756c00696e", "CN=nul\\00in"),
    ("30153113301106035504030c0a656d6f6a6920f09f9880", "CN=emoji 😀"),
    ("300f310d300b0603550403120431322033", "CN=#120431322033"),
    ("30173115301306035504031c0c000000750000006e00000069", "CN=#1c0c000000750000006e00000069"),
    ("300e310c300a06035504030303000102", "CN=#0303000102"),
    ("3000", ""),
    ("3024310c300a0603550403140361a062311430120603550403130b612a6240635f6426652166", "CN=a*b@c_d&e!f,CN=a�b"),
    ("301f310f300d06035504030c06612362202363310c300a06035504030c030d610d", "CN=\\\ra\\\r,CN=a\\#b \\#c"),
    ("302831263011060a0992268993f22c6401190c03636f6d3011060a0992268993f22c6401190c036f7267", "DC=com+DC=org"),
    ("300d310b300906035504031e020071", "CN=\\00q"),
]


@pytest.mark.parametrize(("der", "written"), BY_JAVA, ids=lambda value: ascii(value)[:40])
def test_a_name_is_written_as_java_writes_it(der, written):
    (sequence,) = _contents(bytes.fromhex(der))
    assert written_name(sequence) == written


def _contents(der):
    """Yield the contents of a DER sequence of up to 64 KiB."""
    yield der[2:] if der[1] < 128 else der[2 + der[1] - 128 :]


def test_the_name_is_that_of_the_certificates_owner(certificates):
    der = ssl.PEM_cert_to_DER_cert(certificates.chain_pem)
    assert distinguished_name(der).startswith("CN=")


def test_a_truncated_certificate_is_reported_as_cut_short(certificates):
    der = ssl.PEM_cert_to_DER_cert(certificates.chain_pem)
    for size in (0, 1, 10, 60, 100):
        with pytest.raises(ValueError, match="cut short"):
            distinguished_name(der[:size])
