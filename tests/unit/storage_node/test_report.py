"""What goes into a heartbeat, and for how long."""

from fs3.ids import ChainId, ChainVersion, Incarnation, NodeId, TargetId
from fs3.wire.liveness import Outcome
from storage_node import messages
from storage_node.core.report import Accusation, Finished, Probed, Progress, Reporter, Status

TARGET = TargetId(1 << 32)
NODE = NodeId(2)


def test_evidence_and_probes_are_said_once() -> None:
    reporter = Reporter()
    accusation = Accusation(NODE, Incarnation(5), is_refused=True)
    probed = Probed(NODE, Incarnation(5), Outcome.REFUSED, Incarnation(0))
    reporter.accuse(accusation)
    reporter.probed(probed)
    first, second = reporter.take(), reporter.take()
    assert (first.accusations, first.probes) == ((accusation,), (probed,))
    assert (second.accusations, second.probes) == ((), ())


def test_many_resets_of_one_node_are_one_accusation() -> None:
    reporter = Reporter()
    for _ in range(100):
        reporter.accuse(Accusation(NODE, Incarnation(5), is_refused=False))
    assert len(reporter.take().accusations) == 1


def test_a_finished_copy_is_said_until_the_chain_moves_on() -> None:
    reporter = Reporter()
    finished = Finished(ChainId(1), ChainVersion(4), TARGET)
    reporter.sync_finished(finished)
    assert reporter.take().finished == (finished,)
    reporter.chain_moved(ChainId(1), ChainVersion(4))
    assert reporter.take().finished == (finished,)
    reporter.chain_moved(ChainId(1), ChainVersion(5))
    assert reporter.take().finished == ()


def test_space_is_said_when_it_changed_and_to_each_new_manager() -> None:
    reporter = Reporter()
    status = Status(TARGET, capacity_bytes=10, free_bytes=10)
    reporter.measured(status)
    assert reporter.take().statuses == (status,)
    reporter.measured(status)
    assert reporter.take().statuses == ()
    reporter.connected()
    assert reporter.take().statuses == (status,)


def test_a_failed_target_stays_failed() -> None:
    reporter = Reporter()
    reporter.failed(TARGET, "disk error")
    reporter.measured(Status(TARGET, free_bytes=10))
    (status,) = reporter.take().statuses
    assert (status.failed, status.cause) == (True, "disk error")


def test_a_report_becomes_a_message() -> None:
    reporter = Reporter(applied=(2, 7))
    reporter.accuse(Accusation(NODE, Incarnation(5), is_refused=False))
    reporter.probed(Probed(NODE, Incarnation(5), Outcome.ANSWERED, Incarnation(6)))
    reporter.sync_progressed(Progress(ChainId(1), TARGET, 3, 10))
    message = messages.heartbeat(NodeId(1), Incarnation(9), reporter.take())
    assert (message.routing_epoch, message.routing_version) == (2, 7)
    assert (message.evidence[0].node_id, message.evidence[0].incarnation) == (2, 5)
    assert (message.probes[0].outcome, message.probes[0].answered) == (Outcome.ANSWERED.value, 6)
    assert (message.progress[0].done_chunks, message.progress[0].total_chunks) == (3, 10)
