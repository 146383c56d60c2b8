"""Plays a script to a broker over one raw connection and lists the answers, free of what differs from run to run.

Answers are JSON values. Error codes are names. A producer id is "P0" when it is the first one that the script saw,
"P1" the second; "X..." are foreign ones. A timestamp is "T+n" (the script's own clock: one millisecond a record) or
"clock" (the broker's). Topics, transactional ids and groups are the script's own and not part of an answer.
"""

import json

from differential.admin_steps import AdminSteps
from differential.coordinator_steps import CoordinatorSteps
from differential.group_steps import GroupSteps
from differential.log_steps import LogSteps
from differential.partition_steps import PartitionSteps
from differential.producers import Handles
from differential.reading import Answers

# How one knows that one has met the marker phase; tries to, and tries that other errors are believed after.
MET = ("CONCURRENT_TRANSACTIONS", "Prepare")
MEETINGS, FEW = 60, 5
NO_ANSWER, CLOSED = "no answer", "closed"


class Captured(Exception):
    """A request that a step was about to send."""


class Capture:
    """Stands for the connection: gives away what would be sent, then answers with what came."""

    def __init__(self, response=None):
        self._response = response

    def send(self, request, version):
        if self._response is None:
            raise Captured(request, version)
        return self._response


class Player(AdminSteps, LogSteps, CoordinatorSteps, PartitionSteps, GroupSteps):
    """A player of one script, on one connection at a time.

    `raise_epoch(transactional_id, count)` replaces `count` requests that initialize the id, if the broker has it.
    """

    def __init__(self, connect, script, prefix, raise_epoch=None):
        super().__init__(connect, prefix, Answers(), Handles())
        self._script, self._raise_epoch = script, raise_epoch

    def play(self):
        """The answers, one for each step. To hang or to hang up is an answer too."""
        answers = [self._answer(step) for step in self._script.all_steps]
        self._restore_level()
        self._connection.close()
        return answers

    def _meet(self, step):
        for attempt in range(MEETINGS):
            for before in step["begin"]:
                self._step(before)
            requests = [self._capture(each) for each in (step["ended"], step["asked"])]
            responses = self._connection.send_together(requests)
            self._give(step["ended"], responses[0])
            answer = self._give(step["asked"], responses[1])
            self._settle(self._handles[step["ended"]["who"]].id)
            said = json.dumps(answer)
            if any(each in said for each in MET) or (attempt > FEW and "NONE" not in said):
                break
        return answer

    def _capture(self, step):
        try:
            self._through(Capture(), step)
        except Captured as captured:
            return captured.args
        raise AssertionError(f"{step} sends nothing")

    def _give(self, step, response):
        return self._through(Capture(response), step)

    def _through(self, capture, step):
        connection, self._connection = self._connection, capture
        try:
            return self._step(step)
        finally:
            self._connection = connection

    def _step(self, step):
        return getattr(self, "_" + step["op"])(step)

    def _answer(self, step):
        try:
            return self._step(step)
        except TimeoutError:
            answer = NO_ANSWER
        except ConnectionError:
            answer = CLOSED
        self._connection.close()
        self._connection = self._connect()
        return answer
