#!/usr/bin/python3
"""screen-svg.py COLUMNS: converts a screen from `tmux capture-pane -e -p` to an SVG picture.

It reads the screen from standard input and writes the picture to standard output.
"""

import re
import sys
import unicodedata
from html import escape

WIDTH, HEIGHT, MARGIN = 8.4, 18, 14
INK, PAPER = "#d7dde5", "#12161c"
COLOURS = ["#5c6370", "#ef5350", "#7cb342", "#ffb300", "#42a5f5", "#ab47bc", "#26c6da", "#d7dde5"]


def colour(words):
    """Return the colour that follows 38 or 48, and how many numbers it takes."""
    if words[:1] == [2]:
        return "#%02x%02x%02x" % tuple(words[1:4]), 4
    index = words[1]
    if index < 16:
        return COLOURS[index % 8], 2
    if index >= 232:
        return "#" + "%02x" % (8 + 10 * (index - 232)) * 3, 2
    levels = [0, 95, 135, 175, 215, 255]
    index -= 16
    return "#%02x%02x%02x" % (levels[index // 36], levels[index // 6 % 6], levels[index % 6]), 2


def apply(style, words):
    while words:
        code = words.pop(0)
        if code == 0:
            style.clear()
        elif code in (1, 2, 4, 7):
            style[{1: "bold", 2: "dim", 4: "underline", 7: "reverse"}[code]] = True
        elif code in (22, 24, 27):
            for name in {22: ("bold", "dim"), 24: ("underline",), 27: ("reverse",)}[code]:
                style.pop(name, None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style["ink"] = COLOURS[code % 10]
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style["paper"] = COLOURS[code % 10]
        elif code in (38, 48):
            style["ink" if code == 38 else "paper"], taken = colour(words)
            del words[:taken]
        elif code in (39, 49):
            style.pop("ink" if code == 39 else "paper", None)


def main():
    columns = int(sys.argv[1])
    lines = sys.stdin.read().rstrip("\n").split("\n")
    width, height = columns * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    back, front, style = [], [], {}
    for row, line in enumerate(lines):
        x = 0
        for control, text in re.findall(r"\x1b\[([0-9;:]*)m|([^\x1b]+)", line):
            if not text:
                apply(style, [int(word or 0) for word in re.split("[;:]", control)])
                continue
            wide = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
            ink, paper = style.get("ink", INK), style.get("paper")
            if style.get("reverse"):
                ink, paper = paper or PAPER, ink
            left, length = MARGIN + x * WIDTH, wide * WIDTH
            if paper:
                back.append(f'<rect x="{left:.1f}" y="{MARGIN + row * HEIGHT}" width="{length:.1f}" height="{HEIGHT}" fill="{paper}"/>')
            if text.strip():
                extra = ' font-weight="bold"' * ("bold" in style) + ' opacity=".6"' * ("dim" in style) + ' text-decoration="underline"' * ("underline" in style)
                front.append(f'<text x="{left:.1f}" y="{MARGIN + row * HEIGHT + 13}" fill="{ink}"{extra} textLength="{length:.1f}" xml:space="preserve">{escape(text)}</text>')
            x += wide
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" '
          f"font-family=\"'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"14\">"
          f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>{"".join(back)}{"".join(front)}</svg>')


main()
