-- name: insert_wait
-- Begin to wait: for an event, until a time, or both.
insert into counterfoil_wait (tenant, thread_id, task_id, name, number, checkpoint_ns, node, event, subject, state, attempt,
  due_at, created_at)
values (:tenant, :thread_id, :task_id, :name, :number, :checkpoint_ns, :node, :event, :subject, :state, :attempt,
  coalesce(cast(:until as bigint), {now} + :timeout), {now})
returning state, attempt, due_at, event_seq, ended_at, {now} as now;

-- name: ask_wait_again
-- Note that a run asks for a wait's answer.
update counterfoil_wait
set attempt = :attempt,
  event = :event,
  subject = :subject
where tenant = :tenant
  and thread_id = :thread_id
  and task_id = :task_id
  and name = :name
  and number = :number
returning state, attempt, due_at, event_seq, ended_at, {now} as now;

-- name: end_wait_if_open
-- Answer a wait with an event, or say that its time is over.
update counterfoil_wait
set state = :state,
  event_seq = :event_seq,
  ended_at = {now}
where tenant = :tenant
  and thread_id = :thread_id
  and task_id = :task_id
  and name = :name
  and number = :number
  and state = :expected_state
returning state, ended_at;

-- name: get_last_timer
-- Read when a recurring timer of a workflow was due last, and when it was over.
select due_at, ended_at
from counterfoil_wait
where tenant = :tenant
  and thread_id = :thread_id
  and name = :name
  and event is null
  and state = :expected_state
order by due_at desc
limit 1;

-- name: list_waits
-- Read what the steps of a workflow wait for, or waited for.
select task_id, name, number, checkpoint_ns, node, event, subject, state, attempt, due_at, event_seq, created_at, ended_at
from counterfoil_wait
where tenant = :tenant
  and thread_id = :thread_id
order by created_at, name, number;

-- name: delete_waits
-- Delete what the steps of a workflow wait for, or waited for.
delete from counterfoil_wait
where tenant = :tenant
  and thread_id = :thread_id;

-- name: delete_events
-- Delete the events of a workflow.
delete from counterfoil_event
where tenant = :tenant
  and workflow_id = :thread_id
returning event_id;

-- name: list_asked_waits
-- Read what the last run of a workflow waits for.
select name, event, subject, due_at
from counterfoil_wait
where tenant = :tenant
  and thread_id = :thread_id
  and attempt = :attempt
  and state = :expected_state
order by due_at, name;

-- name: is_waited_for
-- Say whether the last run of a workflow waits for an event of this name, about this subject or any.
select 1 as waits
from counterfoil_wait found
join counterfoil_thread thread
  on thread.tenant = found.tenant
  and thread.thread_id = found.thread_id
  and thread.attempt = found.attempt
where found.tenant = :tenant
  and found.thread_id = :thread_id
  and found.event = :name
  and (found.subject is null or found.subject = cast(:subject as text))
  and found.state = :expected_state
limit 1;

-- name: insert_event
-- Keep an event that came, unless one of its id did before.
insert into counterfoil_event (tenant, workflow_id, event_id, name, subject, sequence, content_digest, payload, state,
  received_at)
values (:tenant, :thread_id, :event_id, :name, :subject, :sequence, :content_digest, :payload, :state,
  {now})
on conflict (tenant, workflow_id, event_id) do nothing
returning seq, received_at;

-- name: get_event
-- Read an event by its id.
select seq, name, state, content_digest, received_at
from counterfoil_event
where tenant = :tenant
  and workflow_id = :thread_id
  and event_id = :event_id;

-- name: get_event_by_seq
-- Read the event that answered a wait.
select event_id, name, subject, sequence, payload, received_at
from counterfoil_event
where tenant = :tenant
  and workflow_id = :thread_id
  and seq = :seq;

-- name: get_newest_sequence
-- Read the highest number of the events about one subject.
select sequence
from counterfoil_event
where tenant = :tenant
  and workflow_id = :thread_id
  and subject = :subject
  and sequence is not null
order by sequence desc
limit 1;

-- name: list_kept_events
-- Read the events of one name that nothing has taken, in the order in which they came.
select seq, subject, payload, received_at
from counterfoil_event
where tenant = :tenant
  and workflow_id = :thread_id
  and name = :name
  and state = :expected_state
order by seq;

-- name: take_event_if_kept
-- Take an event for the wait that it answers.
update counterfoil_event
set state = :state,
  taken_at = {now}
where tenant = :tenant
  and workflow_id = :thread_id
  and seq = :seq
  and state = :expected_state
returning seq;

-- name: list_events
-- Read a workflow's events, in the order in which they came.
select seq, event_id, name, subject, sequence, state, received_at, taken_at
from counterfoil_event
where tenant = :tenant
  and workflow_id = :thread_id
order by seq
limit :limit;
