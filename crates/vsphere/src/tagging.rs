//! The tagging API: which objects have a tag. It is REST with JSON and has sessions of its own, apart from SOAP's.
//!
//! Input: names of tags. Output: [`Tagged`], the objects that have one of them, and the names that no tag has.
//!
//! - Addresses: `/rest/...` since vSphere 6.5, which wraps each result in `value`; a server without it has `/api/...`.
//! - The API lists only ids, so the name of each tag and category takes a request. [`TagNames`] keeps the names; a read
//!   asks for those of new ids, and for some of the others again, because a tag can be renamed.
//!
//! Invariants: every request has a time limit, and so has a read as a whole. A read that does not end in time has made
//! progress: the names that it has read are kept. At most [`TAGS_MAX`] tags are read, a few at a time; a session that
//! has expired is replaced once per read; a refused password counts at the same gate as those of SOAP sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::pin::pin;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ManagedObject;
use crate::client::Credentials;
use crate::config::VcenterConfig;
use crate::error::VsphereError;
use crate::transport::Transport;

const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// The limit of a read, with a login.
const READ_LIMIT: Duration = Duration::from_secs(60);
/// How many names of tags, and of categories, a read asks for if there are no more new ones, and for how long at most.
const READ_AGAIN_MAX: usize = 100;
const READ_AGAIN_LIMIT: Duration = Duration::from_secs(10);
const REQUESTS_AT_ONCE: usize = 4;
/// The maximum that vSphere supports.
const TAGS_MAX: usize = 10_000;
const SESSION_HEADER: &str = "vmware-api-session-id";

/// The objects with one of the wanted tags.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tagged {
    pub objects: BTreeSet<ManagedObject>,
    /// The wanted names that no tag has.
    pub unknown: Vec<String>,
}

/// A client of the tagging API of one vCenter.
#[derive(Debug)]
pub struct Tagging {
    config: VcenterConfig,
    transport: Transport,
    session: Option<Session>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Rest,
    Api,
}

#[derive(Clone, Debug)]
struct Session {
    form: Form,
    token: HeaderValue,
}

/// The names of tags and categories, by id. Empty at first.
#[derive(Debug, Default)]
pub struct TagNames {
    categories: Known<Category>,
    tags: Known<Tag>,
}

#[derive(Debug)]
struct Known<T> {
    by_id: BTreeMap<String, T>,
    /// The last one that was read again; the next one in the order of ids is due.
    last: String,
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known { by_id: BTreeMap::new(), last: String::new() }
    }
}

impl<T> Known<T> {
    /// The next ones in turn.
    fn due(&mut self, at_most: usize) -> Vec<String> {
        let after = self.by_id.range::<str, _>((Bound::Excluded(self.last.as_str()), Bound::Unbounded));
        let before = self.by_id.range::<str, _>((Bound::Unbounded, Bound::Included(self.last.as_str())));
        let due: Vec<String> = after.chain(before).map(|(id, _)| id.clone()).take(at_most).collect();
        if let Some(last) = due.last() {
            self.last.clone_from(last);
        }
        due
    }
}

#[derive(Debug, Deserialize)]
struct Category {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Tag {
    name: String,
    category_id: String,
}

#[derive(Deserialize)]
struct Attached {
    id: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Wrapped<T> {
    value: Option<T>,
}

impl Form {
    fn path(self, of: &Resource) -> String {
        let (root, id, action) = match self {
            Form::Rest => ("/rest/com/vmware/cis", "id:", "~action"),
            Form::Api => ("/api/cis", "", "action"),
        };
        match of {
            Resource::Session if self == Form::Api => "/api/session".to_owned(),
            Resource::Session => format!("{root}/session"),
            Resource::Categories => format!("{root}/tagging/category"),
            Resource::Category(category) => format!("{root}/tagging/category/{id}{category}"),
            Resource::Tags => format!("{root}/tagging/tag"),
            Resource::Tag(tag) => format!("{root}/tagging/tag/{id}{tag}"),
            Resource::ObjectsOf(tag) => {
                format!("{root}/tagging/tag-association/{id}{tag}?{action}=list-attached-objects")
            }
        }
    }
}

enum Resource {
    Session,
    Categories,
    Category(String),
    Tags,
    Tag(String),
    ObjectsOf(String),
}

impl Tagging {
    pub fn new(config: &VcenterConfig) -> Result<Tagging, VsphereError> {
        Ok(Tagging { transport: config.transport()?, config: config.clone(), session: None })
    }

    /// The objects with one of these tags, each given as `tag` or `category:tag`. `names` is what earlier reads of this
    /// vCenter have found; also if this one fails, it knows more.
    pub async fn objects_with(&mut self, tags: &[String], names: &mut TagNames) -> Result<Tagged, VsphereError> {
        let host = self.host().to_owned();
        let reading = async {
            let is_new = self.session.is_none();
            match self.read(tags, names).await {
                Err(VsphereError::NotAuthenticated) if !is_new => {
                    self.session = None;
                    self.read(tags, names).await
                }
                result => result,
            }
        };
        let read = tokio::time::timeout(READ_LIMIT, reading).await;
        read.unwrap_or_else(|_| Err(VsphereError::TagsUnread { host, seconds: READ_LIMIT.as_secs() }))
    }

    /// Ends the session: a vCenter has a limited number of them.
    pub async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            // A session that is not ended expires.
            let _ = self.send(Method::DELETE, &session, &Resource::Session).await;
        }
    }

    async fn read(&mut self, wanted: &[String], names: &mut TagNames) -> Result<Tagged, VsphereError> {
        let session = match &self.session {
            Some(session) => session.clone(),
            None => self.session.insert(self.login().await?).clone(),
        };
        self.read_names(&session, &Resource::Categories, Resource::Category, &mut names.categories).await?;
        self.read_names(&session, &Resource::Tags, Resource::Tag, &mut names.tags).await?;
        let (categories, tags) = (&names.categories.by_id, &names.tags.by_id);
        let named = |name: &String| {
            let is_it = |tag: &Tag| {
                let category = categories.get(&tag.category_id);
                tag.name == *name || category.is_some_and(|it| *name == format!("{}:{}", it.name, tag.name))
            };
            tags.iter().filter(|(_, tag)| is_it(tag)).map(|(id, _)| id.clone()).collect::<Vec<_>>()
        };
        let mut tagged = Tagged::default();
        for name in wanted {
            let ids = named(name);
            if ids.is_empty() {
                tagged.unknown.push(name.clone());
            }
            for id in ids {
                // A tag that is gone by now has no objects.
                let objects = self.result(Method::POST, &session, &Resource::ObjectsOf(id)).await?;
                let objects: Vec<Attached> = objects.unwrap_or_default();
                tagged.objects.extend(objects.iter().map(|object| ManagedObject::new(&object.kind, &object.id)));
            }
        }
        Ok(tagged)
    }

    /// Updates the known categories or tags. Those deleted meanwhile are left out.
    async fn read_names<T: DeserializeOwned>(
        &self,
        session: &Session,
        list: &Resource,
        of: fn(String) -> Resource,
        known: &mut Known<T>,
    ) -> Result<(), VsphereError> {
        let ids: Vec<String> = self.result(Method::GET, session, list).await?.unwrap_or_default();
        if ids.len() > TAGS_MAX {
            return Err(self.protocol(&format!("more than {TAGS_MAX} tags or categories")));
        }
        let ids: BTreeSet<String> = ids.into_iter().collect();
        known.by_id.retain(|id, _| ids.contains(id));
        let new: Vec<String> = ids.into_iter().filter(|id| !known.by_id.contains_key(id)).collect();
        let mut left = READ_AGAIN_MAX.saturating_sub(new.len()).min(known.by_id.len());
        self.read_each(session, new, of, known).await?;
        let again = async {
            while left > 0 {
                let due = known.due(left.min(REQUESTS_AT_ONCE));
                left = left.saturating_sub(due.len().max(1));
                self.read_each(session, due, of, known).await?;
            }
            Ok::<(), VsphereError>(())
        };
        // The next reads continue with the others.
        tokio::time::timeout(READ_AGAIN_LIMIT, again).await.unwrap_or(Ok(()))
    }

    async fn read_each<T: DeserializeOwned>(
        &self,
        session: &Session,
        ids: Vec<String>,
        of: fn(String) -> Resource,
        known: &mut Known<T>,
    ) -> Result<(), VsphereError> {
        let one = async |id: String| {
            let found: Option<T> = self.result(Method::GET, session, &of(id.clone())).await?;
            Ok::<_, VsphereError>((id, found))
        };
        let mut read = pin!(stream::iter(ids).map(one).buffer_unordered(REQUESTS_AT_ONCE));
        while let Some((id, found)) = read.try_next().await? {
            match found {
                Some(found) => drop(known.by_id.insert(id, found)),
                None => drop(known.by_id.remove(&id)),
            }
        }
        Ok(())
    }

    async fn login(&self) -> Result<Session, VsphereError> {
        let login = async |credentials: Credentials| match self.login_to(Form::Rest, &credentials).await {
            Err(VsphereError::Http { status: 404, .. }) => self.login_to(Form::Api, &credentials).await,
            result => result,
        };
        self.config.log_in(async |credentials| Box::pin(login(credentials)).await).await
    }

    async fn login_to(&self, form: Form, credentials: &Credentials) -> Result<Session, VsphereError> {
        let pair = BASE64_STANDARD.encode(format!("{}:{}", credentials.username, credentials.password));
        let mut authorization =
            HeaderValue::from_str(&format!("Basic {pair}")).map_err(|error| self.protocol(&error.to_string()))?;
        authorization.set_sensitive(true);
        let request = self.request(Method::POST, form, &Resource::Session, (header::AUTHORIZATION, authorization))?;
        let response = self.transport.send(self.host(), REQUEST_LIMIT, request).await?;
        match response.status() {
            status if status.is_success() => {
                let token: Option<String> = self.parsed(form, response.body())?;
                let token = token.ok_or_else(|| self.protocol("no session"))?;
                let mut token = HeaderValue::from_str(&token).map_err(|error| self.protocol(&error.to_string()))?;
                token.set_sensitive(true);
                Ok(Session { form, token })
            }
            StatusCode::UNAUTHORIZED => Err(VsphereError::InvalidLogin),
            status => Err(self.http(status)),
        }
    }

    /// `None` if the server has no such object, or no value for it.
    async fn result<T: DeserializeOwned>(
        &self,
        method: Method,
        session: &Session,
        of: &Resource,
    ) -> Result<Option<T>, VsphereError> {
        let response = self.send(method, session, of).await?;
        match response.status() {
            status if status.is_success() => self.parsed(session.form, response.body()),
            StatusCode::NOT_FOUND if !matches!(of, Resource::Categories | Resource::Tags) => Ok(None),
            StatusCode::UNAUTHORIZED => Err(VsphereError::NotAuthenticated),
            status => Err(self.http(status)),
        }
    }

    async fn send(
        &self,
        method: Method,
        session: &Session,
        of: &Resource,
    ) -> Result<http::Response<Bytes>, VsphereError> {
        let token = (header::HeaderName::from_static(SESSION_HEADER), session.token.clone());
        self.transport.send(self.host(), REQUEST_LIMIT, self.request(method, session.form, of, token)?).await
    }

    fn request(
        &self,
        method: Method,
        form: Form,
        of: &Resource,
        (name, value): (header::HeaderName, HeaderValue),
    ) -> Result<Request<Full<Bytes>>, VsphereError> {
        let uri = format!("{}{}", self.config.endpoint.origin(), form.path(of));
        let mut request = Request::builder().method(method).uri(uri).header(name, value);
        request = request.header(header::ACCEPT, "application/json");
        // An action takes its parameters from the body, also if there are none.
        let request = match of {
            Resource::ObjectsOf(_) => {
                request.header(header::CONTENT_TYPE, "application/json").body(Full::new(Bytes::from_static(b"{}")))
            }
            _ => request.body(Full::default()),
        };
        request.map_err(|error| self.protocol(&error.to_string()))
    }

    fn parsed<T: DeserializeOwned>(&self, form: Form, body: &[u8]) -> Result<Option<T>, VsphereError> {
        let parsed = match form {
            Form::Rest => serde_json::from_slice(body).map(|Wrapped { value }| value),
            Form::Api => serde_json::from_slice(body),
        };
        parsed.map_err(|error| self.protocol(&error.to_string()))
    }

    fn host(&self) -> &str {
        self.config.endpoint.host()
    }

    fn protocol(&self, what: &str) -> VsphereError {
        VsphereError::Protocol { host: self.host().to_owned(), what: format!("tagging: {what}") }
    }

    fn http(&self, status: StatusCode) -> VsphereError {
        VsphereError::Http { host: self.host().to_owned(), status: status.as_u16() }
    }
}

#[cfg(test)]
#[path = "tagging_tests.rs"]
mod tests;
