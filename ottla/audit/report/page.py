"""The frame of the HTML report: its style sheet, and conversion of text to markup. pure

Everything is in one file, without external fonts, scripts or images. Colours follow the reader's light or dark theme.
"""

from collections.abc import Iterable, Sequence

from ottla.printable import html_text as escape

STYLE = """
:root { color-scheme: light dark; --text: #1d2530; --soft: #5d6876; --faint: #d8dde4; --page: #ffffff; --card:
  #f6f8fa;
  --good: #1a7f4b; --bad: #c93a3a; --warn: #a86400; --committed: #4477aa; --aborted: #b07aa1; --open: #e8a317;
  --line: #c93a3a; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ee; --soft: #9aa5b4; --faint: #343c48; --page: #14181e;
  --card: #1c222b; --good: #4cc38a; --bad: #ff7b7b; --warn: #e3b341; --committed: #6ea8dc; --aborted: #cf9ac2;
  --open: #f0b429; --line: #ff7b7b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 32px 24px 64px; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 15px; font-weight: 500; color: var(--soft); margin: 0 0 4px; }
h2 { font-size: 19px; margin: 44px 0 4px; }
h3 { font-size: 15px; margin: 28px 0 2px; scroll-margin-top: 16px; }
p { margin: 4px 0; } .soft { color: var(--soft); font-size: 13px; } a { color: inherit; }
.verdict { font-size: 27px; line-height: 1.25; font-weight: 650; margin: 0 0 10px; }
.clean { color: var(--good); } .error { color: var(--bad); } .warning, .waiting { color: var(--warn); }
.chips { display: flex; flex-wrap: wrap; gap: 8px; margin: 12px 0 0; padding: 0; list-style: none; }
.chips li { background: var(--card); border: 1px solid var(--faint); border-radius: 999px; padding: 2px 12px;
  font-size: 13px; }
.chips b { font-variant-numeric: tabular-nums; }
.by-offset, .by-time, .wide { max-width: 100%; }
table { border-collapse: collapse; width: 100%; font-size: 13px; margin-top: 10px; font-variant-numeric:
  tabular-nums; }
th { text-align: right; font-weight: 500; color: var(--soft); border-bottom: 1px solid var(--faint); padding: 4px
  8px; white-space: nowrap; position: sticky; top: 0; background: var(--page); }
td { text-align: right; border-bottom: 1px solid var(--faint); padding: 5px 8px; vertical-align: top;
  white-space: nowrap; }
th.left, td.left { text-align: left; }
td.name { white-space: normal; min-width: 150px; }
td.waiting { font-weight: 600; } td.zero { color: var(--soft); } td.held { color: var(--bad); font-weight:
  600; }
.finding { border-left: 4px solid var(--faint); padding: 8px 14px 10px; margin: 10px 0; background: var(--card);
  border-radius: 0 6px 6px 0; scroll-margin-top: 16px; }
.finding.error { border-color: var(--bad); color: inherit; } .finding.warning { border-color: var(--warn); color:
  inherit; }
.finding:target, h3:target { outline: 2px solid var(--committed); outline-offset: 3px; }
.finding .place { font-weight: 600; }
.label { font-size: 12px; font-weight: 650; margin-right: 6px; } .finding.error .label { color: var(--bad); }
.finding.warning .label { color: var(--warn); }
code { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.action code { background: var(--page); border: 1px solid var(--faint); border-radius: 4px; padding: 1px 6px;
  box-decoration-break: clone; -webkit-box-decoration-break: clone; }
.line { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 12px; margin: 26px 0 0; }
.line h3, .line p { margin: 0; }
.many { font-weight: 400; color: var(--soft); }
svg { display: block; width: 100%; margin-top: 6px; overflow: visible; } svg[viewBox] { height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg .grid { stroke: var(--faint); } svg .committed { fill: var(--committed); } svg .aborted { fill: var(--aborted); }
svg .open { fill: var(--open); } svg .curve { fill: none; stroke: var(--committed); stroke-width: 2; }
svg .stable { stroke: var(--line); stroke-width: 1.5; stroke-dasharray: 5 3; } svg text.stable-label { fill:
  var(--line); }
svg .beyond { fill: var(--open); opacity: .08; } svg .mark { fill: var(--bad); } svg .share-none { fill:
  var(--faint); }
.legend { display: flex; flex-wrap: wrap; gap: 16px; font-size: 13px; color: var(--soft); margin-top: 8px; }
.legend i { display: inline-block; width: 14px; height: 10px; border-radius: 2px; margin-right: 6px; }
.legend i.waits { width: 0; height: 12px; border-left: 1.5px dashed var(--line); vertical-align: -2px; }
.legend b { color: var(--bad); margin-right: 4px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)); gap: 8px 32px; }
.charts > div { overflow-x: auto; } .charts svg { min-width: 480px; }
.switch { display: inline-flex; gap: 14px; font-size: 13px; margin-top: 8px; } .by-time { display: none; }
body:has(#time:checked) .by-time { display: block; } body:has(#time:checked) .by-offset { display: none; }
details { margin-top: 10px; } summary { cursor: pointer; color: var(--soft); font-size: 13px; }
@media (max-width: 1120px) { .wide { overflow-x: auto; } th { position: static; } }
@media (max-width: 760px) { body { padding: 20px 16px 48px; } .verdict { font-size: 22px; } h2 { margin-top: 34px; }
  svg .roomy { display: none; } }
@media print { :root { color-scheme: light; --text: #1d2530; --soft: #5d6876; --faint: #d8dde4; --page: #ffffff;
  --card: #f6f8fa; --good: #1a7f4b; --bad: #c93a3a; --warn: #a86400; --committed: #4477aa; --aborted: #b07aa1;
  --open: #e8a317; --line: #c93a3a; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } body { max-width: none; padding: 0; }
  .switch { display: none; } .finding, .drawn, svg, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  th { position: static; } }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole document."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def element(name: str, content: str, **attributes: object) -> str:
    """Return an element. `content` is markup. `class_` and `for_` set attributes whose names Python reserves."""
    attrs = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return f"<{name}{attrs}>{content}</{name}>"


def table(heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. `heads`: text, and whether the column is aligned to the left. Cells are whole `td` elements."""
    head = "".join(element("th", escape(text), class_="left" if left else "right") for text, left in heads)
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def anchor(place: str) -> str:
    """Return an id for a partition's timeline."""
    return "p-" + "".join(letter if letter.isalnum() else "-" for letter in place)
