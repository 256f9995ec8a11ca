"""What each statement is asked for in tests that run them all: rows of the large ledger that `crowd.sql` makes."""

from typing import Any

from counterfoil.storage import catalog

STATEMENTS = catalog.load("postgres")
LARGE = "tenant-large"

ASKED: dict[str, Any] = {
    # who asks
    "tenant": LARGE, "principal": "eve", "given_by": "eve", "verdict_by": "eve", "holder": "host/2",
    # an operation
    "operation_id": "o-40000", "request_id": "r-10000", "workflow_id": "w-3000", "thread_id": "t-long", "node": "node",
    "checkpoint_ns": "", "checkpoint_id": "l-9000", "task_id": "task", "run_id": "run-3000", "trace_id": "trace-10000",
    "effect": "effect-1", "effect_version": 1, "sender": "caller", "provider": "{}", "field_digests": b"x",
    "identity_digest": b"i" * 32, "content_digest": b"c" * 32, "payload": b"x", "receipt": b"x", "evidence": None,
    "receipt_marker": None, "expected_marker": "unreadable", "error_class": None, "error_text": None,
    "settled_by": "reply", "terminal": True, "keeps_attempt": False, "state": "succeeded", "version": 1,
    # its claim
    "attempt": 1, "fence": 1, "claimed_at": 0, "lease": 30_000, "time_limit": 30_000, "expected_state": "in_flight",
    "digits_from": 14,
    "outcome": "unknown", "lost": "unknown", "replaces": '["unknown"]',
    # the outbox
    "stream": "stream-1", "due_at": 0, "delay": 0, "time_to_live": None, "max_attempts": 20, "since": 0,
    "tenants": [LARGE], "operation_ids": ["o-40000"], "fences": [1], "receipts": [b"x"], "markers": [None],
    "evidences": [None], "identities": [b"i" * 32], "contents": [b"c" * 32], "all_fields": [b"x"], "payloads": [b"x"],
    "streams": [None], "patience": 5_000, "pause": 1_000, "paused_by": "eve", "expires_at": None, "more": 3,
    # evidence and cases
    "kind": "unknown_outcome", "answer": "late", "body": b"x", "seq": 3000, "reason": "lost", "verdict": "noted",
    "verdict_reason": "seen",
    # lists
    "before": 2**63 - 1, "after": 0, "limit": 51, "page": 51, "older_than": None, "newer_than": None,
    "in_state": "failed", "id": "t-3000", "prefix": "o-300", "beyond": "o-300\U0010ffff",
    # checkpoints
    "parent_id": "l-8999", "root_id": None, "source": "loop", "step": 1, "type": "msgpack", "stored_channels": "{}",
    "leaning": "[]", "metadata": b"{}", "channel": "messages", "value": b"x", "idx": 5, "task_path": "",
    "channels": ["messages", "count"], "versions": ["v1", "v2"], "types": ["msgpack", "msgpack"],
    "values": [b"x", b"y"], "indexes": [7, 8], "asked": '{"messages":""}', "target": "t-copy", "parked_on": None,
    "name": "new", "minted_id": "m-3000", "branch": "what-if", "branched_from": "t-3000", "branched_at": "l-9000",
    "plain_thread_id": "t-3000", "run_attempt": 1, "seen_attempt": 0,
    "oldest": 0,
    # workflows, what they wait for, and what comes
    "graph": "hiring", "graph_version": 1, "shape": "{}", "input_digest": b"i" * 32, "input": b"x", "status": "waiting",
    "tries": 1, "mark": 1, "waits_for": "feedback", "reserve": 30_000, "later_than": 60_000, "event": "feedback",
    "subject": "s-1", "until": None, "timeout": None, "event_seq": None, "event_id": "e-1", "sequence": 1,
    # who did what
    "who": "eve", "shown": "Eve", "role": "operator", "token_id": "k-1", "act": "requeue",
    "state_before": "parked", "state_after": "pending", "by_whom": None, "scopes": None, "secret_digest": b"s" * 32,
    "created_by": "eve", "lifetime": None, "overlap": 1_000, "replaced_by": "k-2", "revoked_by": "eve",
    "changed_by": "eve", "after_tenant": "tenant-1", "expected_status": "active",
    # approvals
    "asker": "task", "requested_by": "eve", "edited_by": None, "follows": None, "followed_by": None,
    "decided_by": "eve", "decide_by": 1, "decide_within": 1_000, "valid_for": 1_000,
    "needs_another": 0, "permits": True,
    "approved_until": None, "follower_id": "o-new~edit-1",
    # grants
    "granted_by": "eve",
    # migrations
    "number": 99, "digest": "d",
}  # fmt: skip
"""A realistic value for every parameter of every statement. One that is missing here belongs to a new statement."""

PAGE = {"state": None, "sender": None, "effect": None, "thread_id": None}
NEW = {"operation_id": "o-new", "thread_id": "t-new", "state": "in_flight"}
CHECKPOINTS = {"source": None, "step": None, "run_id": None, "checkpoint_id": None}
OTHERWISE: dict[str, dict[str, Any]] = {
    "insert_claimed_operation": NEW,
    "look_or_claim_operation": NEW,
    "insert_intent": {"operation_id": "o-new", "sender": "dispatcher", "state": "pending"},
    "claim_due": {"state": "in_flight"},
    "insert_intents": {"operation_ids": ["o-new"], "sender": "dispatcher", "state": "pending"},
    "release_if_fenced": {"state": "pending"},
    "close_intent_if_unmoved": {"state": "expired", "expected_state": "pending"},
    "postpone_intent": {"expected_state": "pending"},
    "renew_tries_if_unmoved": {"state": "pending", "expected_state": "pending"},
    "hasten_intent_if_unmoved": {"expected_state": "pending"},
    "record_own_statement": {"operation_id": "o-new"},
    "insert_claimed_thread": {**NEW, "state": "running"},
    "open_case": {"state": "open"},
    "insert_evidence": {"kind": "late_reply"},
    "get_proof_before": {"kind": "late_reply"},
    "reset_thread": {"state": "idle"},
    "put_branch": {"state": "idle"},
    "put_thread_at_rest": {"state": "idle"},
    "leave_thread_if_claimed": {"state": "idle"},
    "take_thread_if_unmoved": {"state": "running"},
    "take_operation_if_unmoved": {"state": "in_flight", "operation_id": "o-40009"},
    "list_operations": PAGE,
    "list_operations_in_state": PAGE,
    "list_operations_of_request": PAGE,
    "list_operations_of_thread": {"state": None, "sender": None, "effect": None},
    "list_operations_of_stream": PAGE,
    "list_cases_in_state": {"state": "open"},
    "put_grant": {"operation_id": "o-new"},
    "list_approvals_in_state": {"state": "pending"},
    "insert_approval": {"operation_id": "o-new", "root_id": "o-new", "state": "pending"},
    "get_approval_of_asker": {"root_id": "o-40000"},
    "get_newest_follower": {"root_id": "o-40000"},
    "give_decision_back": {"state": "approved"},
    "list_approvals_of_root": {"root_id": "o-40000"},
    "decide_approval_if_unmoved": {"state": "approved", "expected_state": "pending"},
    "spend_approval": {"state": "approved"},
    "permit_operation_if_unmoved": {"state": "pending", "expected_state": "awaiting_approval"},
    "hold_operation_if_unmoved": {"state": "awaiting_approval", "expected_state": "pending"},
    "insert_follower": {"state": "awaiting_approval"},
    "hand_to_dispatcher_if_unsent": {"sender": "dispatcher"},
    "list_due_effects": {"asked": '{"effect-1": 1, "effect-2": 1}'},
    "page_namespace_checkpoints": CHECKPOINTS,
    "page_thread_checkpoints": CHECKPOINTS,
    "page_tenant_checkpoints": CHECKPOINTS,
    "put_accepted_thread": {**NEW, "state": "idle", "status": "accepted"},
    "leave_workflow_if_claimed": {"state": "idle", "terminal": False},
    "park_workflow_if_unmoved": {"state": "idle"},
    "cancel_workflow_if_unmoved": {"state": "idle"},
    "insert_wait": {"state": "open"},
    "end_wait_if_open": {"state": "timed_out", "expected_state": "open"},
    "insert_event": {"state": "kept"},
    "forget_events_if_unmoved": {"until": 2**62},
    "wake_parked_workflow": {"expected_status": "waiting"},
    "list_workflows": {"status": None, "graph": None},
    "insert_token": {"token_id": "k-new"},
    "insert_tenant": {"tenant": "tenant-new", "status": "active"},
    "move_tenant": {"status": "suspended"},
}
"""Where a statement is asked for something else."""


def asked(name: str) -> dict[str, Any]:
    return {key: OTHERWISE.get(name, {}).get(key, ASKED[key]) for key in sorted(STATEMENTS[name].params)}
