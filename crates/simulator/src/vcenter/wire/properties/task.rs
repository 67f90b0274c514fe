//! Task.info.

use crate::vcenter::inventory::{Task, TaskId, TaskState};
use crate::vcenter::wire::history::task_state_name;
use crate::vcenter::wire::soap::localized_fault;
use crate::vcenter::wire::value::{Reference, Value};

pub(crate) fn task_info(id: TaskId, task: &Task) -> Value {
    let error = match &task.state {
        TaskState::Error(fault) => localized_fault(fault, Some(&Reference::from(task.entity))),
        _ => Value::Unset,
    };
    let unfinished = matches!(task.state, TaskState::Queued | TaskState::Running);
    // Tasks without a user (a move by DRS, a restart by HA) are started by the vCenter itself.
    let reason = if task.user.is_empty() || task.user == "System" {
        Value::object("TaskReasonSystem", Vec::new())
    } else {
        Value::object("TaskReasonUser", vec![("userName", Value::string(&task.user))])
    };
    Value::object(
        "TaskInfo",
        vec![
            ("key", Value::string(id.to_string())),
            ("task", Value::Ref(id.into())),
            ("name", Value::string(&task.method)),
            ("descriptionId", Value::string(&task.description_id)),
            ("entity", Value::Ref(task.entity.into())),
            ("entityName", Value::string(&task.entity_name)),
            ("state", Value::of("TaskInfoState", task_state_name(&task.state))),
            ("cancelled", Value::bool(task.cancel_requested)),
            ("cancelable", Value::bool(unfinished)),
            ("error", error),
            ("result", Value::or_unset(task.result, |result| Value::Ref(result.into()))),
            ("progress", Value::or_unset(task.progress_percent.filter(|_| unfinished), Value::int)),
            ("reason", reason),
            ("queueTime", Value::time(task.queued_at)),
            ("startTime", Value::or_unset(task.started_at, Value::time)),
            ("completeTime", Value::or_unset(task.completed_at, Value::time)),
            ("eventChainId", Value::int(id.0)),
        ],
    )
}
