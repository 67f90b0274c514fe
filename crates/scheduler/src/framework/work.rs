//! Work outside the scheduler, as data.
//!
//! In: a value of a type that a plugin and its executor share. Out: the same value, opaque to everything between. The
//! scheduler stays pure: a plugin decides what is to be done, its executor does it and reports the result.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What an executor is to do, or what a plugin is to know. Two are equal if they are the same value in memory.
#[derive(Clone)]
pub struct Work(Arc<dyn AnyWork>);

trait AnyWork: Any + fmt::Debug + Send + Sync {}

impl<T: Any + fmt::Debug + Send + Sync> AnyWork for T {}

impl Work {
    pub fn new<T: fmt::Debug + Send + Sync + 'static>(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// `None` if it is of another type.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        let value: &dyn Any = &*self.0;
        value.downcast_ref()
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Work {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_read_by_its_type_and_equal_to_itself_alone() {
        let work = Work::new("attach".to_owned());
        assert_eq!(work.get::<String>().map(String::as_str), Some("attach"));
        assert_eq!(work.get::<u32>(), None);
        assert_eq!(work, work.clone());
        assert_ne!(work, Work::new("attach".to_owned()));
        assert_eq!(format!("{work:?}"), "\"attach\"");
    }
}
