"""Sound that should never have been published: out of the log with it."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.core.errors import NotFound
from pipeline.fleet.audio_extract import ArrayLog
from pipeline.sources.reorder import arrays_in, unknown_array
from pipeline.transport.nats import Broker
from pipeline.transport.wire import StreamNames


def forget(
    broker: Broker, log: StreamNames, array: str, recording: str | None, *, agreed: Callable[[str], bool]
) -> int:
    """Remove a recording of an array from the log, or all of the array, if that is agreed to; how many messages.

    Decisions that were made about it stay.
    """
    known = broker.subjects(log.stream, log.subject("*"))
    n_messages = known.get(log.subject(array))
    if n_messages is None:
        raise NotFound(unknown_array(array, arrays_in(broker, log), where=f"the log {log.stream}"))
    if recording is None:
        if not agreed(f"all sound of array {array}, {n_messages} messages"):
            return 0
        broker.purge(log.stream, log.subject(array))
        return n_messages
    sound = ArrayLog(broker, log, array)
    sequences = [message.sequence for message in sound.messages(sound.find(recording))]
    if not agreed(f"recording {recording} of array {array}, {len(sequences)} messages"):
        return 0
    for sequence in sequences:
        broker.remove(log.stream, sequence)
    return len(sequences)
