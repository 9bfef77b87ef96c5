"""A confusion matrix as an HTML table, whatever the number of classes."""

from __future__ import annotations

from collections.abc import Sequence

from bertsmith.printable import html as escape

NAMED_ACROSS = 12
MOST_CLASSES = 20
MOST_PAIRS = 30


def confusion_html(matrix: Sequence[Sequence[int]], labels: Sequence[str]) -> str:
    """The matrix (labels, labels) with recall by row and precision by column.

    Cells are shaded by their share of the true class. Up to 12 classes are named above the
    columns, up to 20 numbered; of more, the commonest confusions are listed.
    """
    assert len(matrix) == len(labels)
    assert all(len(row) == len(labels) for row in matrix)
    if len(labels) > MOST_CLASSES:
        return _commonest(matrix, labels)
    numbered = len(labels) > NAMED_ACROSS
    rows = ""
    for number, (row, label) in enumerate(zip(matrix, labels, strict=True)):
        total = sum(row)
        name = f"{number + 1} {label}" if numbered else label
        cells = "".join(_cell(count, total, right=number == i) for i, count in enumerate(row))
        recall = _share(row[number], total, short=numbered)
        rows += f'<tr><th scope="row" title="{escape(label)}">{escape(name)}</th>{cells}'
        rows += f'<td class="rate">{recall}</td></tr>'
    columns = [sum(column) for column in zip(*matrix, strict=True)]
    shares = [_share(matrix[i][i], total, short=numbered) for i, total in enumerate(columns)]
    precision = "".join(f"<td>{share}</td>" for share in shares)
    return (
        f'<table class="confusion{" compact" if numbered else ""}">'
        f"<thead>{_head(labels, numbered=numbered)}</thead><tbody>{rows}</tbody>"
        f'<tfoot><tr><th scope="row">precision</th>{precision}<td></td></tr></tfoot></table>'
    )


def _head(labels: Sequence[str], *, numbered: bool) -> str:
    across = "".join(
        f'<th scope="col" title="{escape(label)}">'
        + (str(number) if numbered else f'<span class="across">{escape(label)}</span>')
        + "</th>"
        for number, label in enumerate(labels, 1)
    )
    return (
        f'<tr><td></td><th scope="colgroup" colspan="{len(labels)}">predicted</th><td></td></tr>'
        f'<tr><th scope="col">true</th>{across}<th scope="col">recall</th></tr>'
    )


def _cell(count: int, total: int, *, right: bool) -> str:
    share = count / total if total else 0.0
    # blue for what is right, orange for what is not, never so dark that black text is hard to read
    colour = "11, 83, 148" if right else "191, 87, 0"
    style = f"background: rgba({colour}, {0.6 * share:.2f})" if count else "color: #6e7781"
    return f'<td style="{style}">{count:,}</td>'


def _commonest(matrix: Sequence[Sequence[int]], labels: Sequence[str]) -> str:
    pairs = sorted(
        (
            (count, true, predicted)
            for true, row in enumerate(matrix)
            for predicted, count in enumerate(row)
            if count and true != predicted
        ),
        key=lambda pair: (-pair[0], pair[1], pair[2]),
    )
    rows = "".join(
        f"<tr><td>{escape(labels[true])}</td><td>{escape(labels[predicted])}</td>"
        f'<td class="number">{count:,}</td>'
        f'<td class="number">{_share(count, sum(matrix[true]))}</td></tr>'
        for count, true, predicted in pairs[:MOST_PAIRS]
    )
    right = sum(matrix[i][i] for i in range(len(labels)))
    total = sum(map(sum, matrix))
    return (
        f"<p>{right:,} of {total:,} right ({_share(right, total)}) in {len(labels)} classes; "
        f"the commonest confusions:</p><table><thead><tr>"
        f'<th scope="col">true</th><th scope="col">predicted</th>'
        f'<th scope="col" class="number">times</th>'
        f'<th scope="col" class="number">of the true class</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _share(part: int, whole: int, *, short: bool = False) -> str:
    if not whole:
        return "–"
    return f"{100 * part / whole:.0f}%" if short else f"{100 * part / whole:.1f} %"
