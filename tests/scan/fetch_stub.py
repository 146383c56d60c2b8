"""A broker of one partition whose answers to Fetch a test scripts."""

import contextlib
import socket
import threading
import uuid

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import ReceiveBuffer, parse_request_header, response_header_size

TOPIC, TOPIC_ID = "ledger", uuid.UUID(int=77)
VERSIONS = {ApiKey.API_VERSIONS: 0, ApiKey.METADATA: 12, ApiKey.FETCH: 13}


class FetchStub(threading.Thread):
    """A context manager. `answer(offset)` returns the fields of the partition's row, or None to name no topic.

    A field `throttle_time_ms` is one of the whole answer; an Exception closes the connection.
    """

    def __init__(self, answer):
        super().__init__(daemon=True)
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.asked = []
        """The offsets of the Fetch requests."""
        self.racks = []
        """The racks of the Fetch requests."""
        self.others = {}
        """The ports of other brokers, by id."""
        self.topic_id = TOPIC_ID
        self.has_leader = True

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        inbox = ReceiveBuffer()
        with peer, contextlib.suppress(OSError, ConnectionError):
            while True:
                while (frame := inbox.next_frame()) is None:
                    received = peer.recv_into(inbox.get_buffer())
                    if not received:
                        return
                    inbox.commit(received)
                header, body_of = parse_request_header(frame)
                body = codec.decode_request(header.api_key, header.api_version, body_of)
                inbox.release()
                reply = self._reply(header.api_key, body)
                encoded = bytes(reply.encode(version=header.api_version))
                tags = b"\0" * (response_header_size(header.api_key, header.api_version) - 4)
                payload = header.correlation_id.to_bytes(4, "big") + tags + encoded
                peer.sendall(len(payload).to_bytes(4, "big") + payload)

    def _reply(self, api_key, body):
        response = codec.response_class(api_key)
        if api_key == ApiKey.API_VERSIONS:
            rows = [
                response.ApiVersion(api_key=int(key), min_version=0, max_version=version)
                for key, version in VERSIONS.items()
            ]
            return response(error_code=0, api_keys=rows)
        if api_key == ApiKey.METADATA:
            return self._metadata(response)
        offset = body.topics[0].partitions[0].fetch_offset
        self.asked.append(offset)
        self.racks.append(body.rack_id)
        fields = self._answer(offset)
        if fields is None:
            return response(throttle_time_ms=1, error_code=0, session_id=0, responses=[], node_endpoints=[])
        row = {
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "error_code": 0,
            "high_watermark": 2**40,
            "last_stable_offset": 2**40,
            "log_start_offset": 0,
        } | fields
        data = response.FetchableTopicResponse.PartitionData(partition_index=0, **{"records": b""} | row)
        topic = response.FetchableTopicResponse(topic_id=self.topic_id, partitions=[data])
        return response(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic], node_endpoints=[])

    def _metadata(self, response):
        brokers = [
            response.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port, rack=None)
            for node_id, port in {1: self.port, **self.others}.items()
        ]
        row = response.MetadataResponseTopic.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=1 if self.has_leader else -1,
            leader_epoch=0,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
        )
        topic = response.MetadataResponseTopic(
            error_code=0,
            name=TOPIC,
            topic_id=self.topic_id,
            is_internal=False,
            partitions=[row],
            authorized_operations=set(),
        )
        return response(throttle_time_ms=0, brokers=brokers, cluster_id="c", controller_id=1, topics=[topic])
