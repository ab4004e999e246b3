"""A terminal's screen, as far as the chat uses one: text, the cursor's moves, erasing, scrolling, and what a terminal does
on resizing that breaks long lines anew. A sequence it does not know is an error: nobody should write one unnoticed."""
import re
import unicodedata

SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
IGNORED = ("?2004h", "?2004l")


def is_joiner(character):
    return character in "\u200d\ufe0f" or "\U0001f3fb" <= character <= "\U0001f3ff"


def is_flag(character):
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def width(character):
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" or is_flag(character) else 1


class Screen:
    def __init__(self, columns=80, rows=24):
        self.columns, self.rows = columns, rows
        self.cells = [self._blank() for _ in range(rows)]
        self.wrapped = [False] * rows  # the row goes on in the next one
        self.row = self.column = 0     # a column of self.columns: behind a full row
        self.scrolled = []             # rows that went out at the top
        self.pending = ""

    def _blank(self):
        return [" "] * self.columns

    def write(self, text):
        text = self.pending + text
        self.pending = ""
        at = 0
        while at < len(text):
            character = text[at]
            if character == "\x1b":
                match = SEQUENCE.match(text, at)
                if not match:
                    if len(text) - at > 32:
                        raise AssertionError(f"an unknown sequence: {text[at:at + 32]!r}")
                    self.pending = text[at:]
                    return
                self._sequence(*match.groups())
                at = match.end()
                continue
            if character == "\r":
                self.column = 0
            elif character == "\n":
                self._line_feed()
            elif character == "\b":
                self.column = max(min(self.column, self.columns - 1) - 1, 0)
            elif character == "\t":
                self.column = min(self.column // 8 * 8 + 8, self.columns - 1)
            elif character >= " ":
                self._put(character)
            elif character != "\a":
                raise AssertionError(f"a control character: {character!r}")
            at += 1

    def _line_feed(self, wrapped=False):
        self.wrapped[self.row] = wrapped
        self.row += 1
        if self.row < self.rows:
            return
        self.row = self.rows - 1
        self.scrolled.append(self._text(self.cells.pop(0)))
        self.cells.append(self._blank())
        self.wrapped = self.wrapped[1:] + [False]

    def _put(self, character):
        row = self.cells[self.row]
        last = self.column - 1
        while last > 0 and row[last] == "":
            last -= 1
        before = row[last] if self.column > 0 else ""
        pair = is_flag(character) and len(before) == 1 and is_flag(before)
        if before and (width(character) == 0 or is_joiner(character) or before[-1] == "\u200d" or pair):
            row[last] += character
            return
        wide = width(character)
        if self.column + wide > self.columns:
            self._line_feed(wrapped=True)
            self.column = 0
            row = self.cells[self.row]
        row[self.column] = character
        if wide == 2:
            row[self.column + 1] = ""
        self.column += wide

    def _sequence(self, arguments, kind):
        if arguments + kind in IGNORED or kind == "m":
            return
        count = int(arguments or 1)
        column = min(self.column, self.columns - 1)
        if kind == "A":
            self.row = max(self.row - count, 0)
        elif kind == "B":
            self.row = min(self.row + count, self.rows - 1)
        elif kind == "C":
            self.column = min(column + count, self.columns - 1)
        elif kind == "H":
            self.row = self.column = 0
        elif kind == "K" and not arguments:
            self.cells[self.row][column:] = [" "] * (self.columns - column)
        elif kind == "J":
            first = 0 if arguments == "2" else self.row + 1
            if arguments != "2":
                self.cells[self.row][column:] = [" "] * (self.columns - column)
            for row in range(first, self.rows):
                self.cells[row] = self._blank()
        else:
            raise AssertionError(f"an unknown sequence: {arguments}{kind}")

    @staticmethod
    def _text(cells):
        return "".join(cells).rstrip()

    def lines(self):
        """The rows down to the last that is not empty."""
        rows = [self._text(cells) for cells in self.cells]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def text(self):
        return "\n".join(self.lines())

    def resize(self, columns, rows):
        """Rows that belong together are broken anew, and the cursor goes with its place in the text."""
        lines, place = [[]], None
        for index, cells in enumerate(self.cells):
            if index == self.row:
                place = (len(lines) - 1, len(lines[-1]) + min(self.column, self.columns - 1))
            full = self.wrapped[index]
            content = list(cells)
            while not full and content and content[-1] == " ":
                content.pop()
            lines[-1] += content
            if not full:
                lines.append([])
        self.columns, self.rows = columns, rows
        cells, wrapped = [], []
        for number, line in enumerate(lines[:-1]):
            chunks = [line[at:at + columns] for at in range(0, max(len(line), 1), columns)]
            if number == place[0]:
                self.row, self.column = len(cells) + place[1] // columns, place[1] % columns
                while place[1] // columns >= len(chunks):
                    chunks.append([])
            cells += [chunk + [" "] * (columns - len(chunk)) for chunk in chunks]
            wrapped += [True] * (len(chunks) - 1) + [False]
        while len(cells) > rows and not self._text(cells[-1]) and self.row < len(cells) - 1:
            cells.pop()
            wrapped.pop()
        while len(cells) > rows:
            self.scrolled.append(self._text(cells.pop(0)))
            wrapped.pop(0)
            self.row -= 1
        cells += [self._blank() for _ in range(rows - len(cells))]
        self.cells, self.wrapped = cells, (wrapped + [False] * rows)[:rows]
