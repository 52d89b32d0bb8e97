"""Compare what a user holds: profiles, archives of repeats, paths."""

from __future__ import annotations

import os

from tracekit.comparison import Comparison
from tracekit.comparison import diff as compare
from tracekit.errors import ArchiveError
from tracekit.lazy_tables import Scope
from tracekit.profile import Archive, Profile, open_any
from tracekit.sides import Side, side


def one_side(measured: Profile | Archive, scope: Scope = "steps") -> Side:
    """What a comparison needs of a profile; the profiles of an archive are taken as repeats of one program.

    Raises:
        TracekitError: if the archive is empty, or only some of its profiles have steps.
    """
    if isinstance(measured, Profile):
        return side(measured.id, measured.inputs(scope), scope=scope)
    profiles = [measured[profile_id] for profile_id in measured.ids]
    if len(profiles) == 1:
        return one_side(profiles[0], scope)
    if not profiles:
        raise ArchiveError(f"{measured.path}: no profiles", hint="run `tracekit ingest` first")
    name = f"{str(measured.path).rstrip('/').rpartition('/')[2]} ({len(profiles)} profiles)"
    return side(name, *(profile.inputs(scope) for profile in profiles), scope=scope)


def diff(
    a: Profile | Archive | str | os.PathLike[str],
    b: Profile | Archive | str | os.PathLike[str],
    *,
    scope: Scope = "steps",
) -> Comparison:
    """Compare two profiles: what changed from ``a`` to ``b``, and whether it is more than noise.

    Args:
        a: a profile, an archive whose profiles repeat one program, or anything ``open`` takes.
        b: likewise.
        scope: as of ``Profile.metric``, for both sides.

    Returns:
        A ``Comparison`` with the frames ``totals``, ``ops`` and ``replaced``.

    Raises:
        TracekitError: if a path holds nothing that can be read, or the two are not measured alike.
    """
    first, second = (p if isinstance(p, Profile | Archive) else open_any(p) for p in (a, b))
    return compare(one_side(first, scope), one_side(second, scope))
