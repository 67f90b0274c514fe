//! Filter specs: the objects that a client selects, the traversals that find them, and the requested properties.
//!
//! In: a PropertyFilterSpec on the wire. Out: a [`FilterSpec`] with selection specs resolved by name and every property
//! name checked against the schema, or the fault of a real vCenter.

use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::schema;
use crate::vcenter::wire::target::Target;
use crate::vcenter::wire::value::Path;
use crate::vcenter::wire::xml::Element;

/// More traversals and properties than any client needs; they bound the cost of one request.
const TRAVERSALS_MAX: usize = 100;
const PATHS_MAX: usize = 1_000;

#[derive(Debug)]
pub struct FilterSpec {
    pub properties: Vec<PropertySpec>,
    pub objects: Vec<ObjectSpec>,
    /// Skip missing objects instead of failing.
    pub skip_missing: bool,
}

#[derive(Debug)]
pub struct PropertySpec {
    pub type_name: String,
    pub all: bool,
    pub paths: Vec<Path>,
}

#[derive(Debug)]
pub struct ObjectSpec {
    pub object: Target,
    /// Only the starting point: the object itself is not reported.
    pub skip: bool,
    pub traversals: Vec<Traversal>,
    /// The traversals that start at the object.
    pub first: Vec<usize>,
}

/// A traversal from objects of a type along one of their properties.
#[derive(Debug)]
pub struct Traversal {
    pub type_name: String,
    pub path: Path,
    pub skip: bool,
    /// The traversals that continue from the found objects.
    pub next: Vec<usize>,
}

impl FilterSpec {
    pub fn read(spec: &Element, session_key: &str) -> Result<FilterSpec, VimFault> {
        let properties = spec.children_named("propSet").map(read_properties).collect::<Result<Vec<_>, _>>()?;
        let objects = spec
            .children_named("objectSet")
            .map(|element| read_object(element, session_key))
            .collect::<Result<Vec<_>, _>>()?;
        if properties.is_empty() || properties.iter().map(|spec| spec.paths.len()).sum::<usize>() > PATHS_MAX {
            return Err(VimFault::InvalidArgument { property: "specSet.propSet".to_owned() });
        }
        if objects.is_empty() || objects.iter().map(|object| object.traversals.len()).sum::<usize>() > TRAVERSALS_MAX {
            return Err(VimFault::InvalidArgument { property: "specSet.objectSet".to_owned() });
        }
        let skip_missing = is_true(spec.child("reportMissingObjectsInResults"));
        Ok(FilterSpec { properties, objects, skip_missing })
    }

    /// The requested paths of an object of that type; `None` if the type is not requested.
    #[must_use]
    pub fn paths_for(&self, type_name: &str) -> Option<Vec<Path>> {
        let mut wanted = false;
        let mut paths: Vec<Path> = Vec::new();
        for spec in self.properties.iter().filter(|spec| schema::is_a(type_name, &spec.type_name)) {
            wanted = true;
            let all = if spec.all { schema::properties(type_name) } else { &[] };
            let all = all.iter().filter_map(|name| Path::parse(name));
            for path in all.chain(spec.paths.iter().cloned()) {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        wanted.then_some(paths)
    }
}

fn read_properties(element: &Element) -> Result<PropertySpec, VimFault> {
    let missing = || VimFault::InvalidArgument { property: "propSet.type".to_owned() };
    let type_name = element.child_text("type").filter(|name| !name.is_empty()).ok_or_else(missing)?;
    let all = is_true(element.child("all"));
    let mut paths = Vec::new();
    // With `all`, the paths are ignored.
    for child in element.children_named("pathSet").filter(|_| !all) {
        let text = child.text.trim();
        let path = Path::parse(text).filter(|path| schema::has_property(type_name, &path.property));
        paths.push(path.ok_or_else(|| VimFault::InvalidProperty(text.to_owned()))?);
    }
    Ok(PropertySpec { type_name: type_name.to_owned(), all, paths })
}

fn read_object(element: &Element, session_key: &str) -> Result<ObjectSpec, VimFault> {
    let missing = || VimFault::InvalidArgument { property: "objectSet.obj".to_owned() };
    let object = Target::read(element.child("obj").ok_or_else(missing)?, session_key)?;
    let mut reader = SelectionReader::default();
    let first = reader.read(element)?;
    let first = resolve(&reader.names, first)?;
    let SelectionReader { traversals: unresolved, names, links } = reader;
    let mut traversals = Vec::with_capacity(unresolved.len());
    for (traversal, links) in unresolved.into_iter().zip(links) {
        traversals.push(Traversal { next: resolve(&names, links)?, ..traversal });
    }
    Ok(ObjectSpec { object, skip: is_true(element.child("skip")), traversals, first })
}

fn resolve(names: &[Option<String>], links: Vec<Link>) -> Result<Vec<usize>, VimFault> {
    let mut resolved = Vec::new();
    for link in links {
        match link {
            Link::To(index) => resolved.push(index),
            Link::Named(name) => {
                let before = resolved.len();
                resolved.extend((0..names.len()).filter(|at| names[*at].as_ref() == Some(&name)));
                if resolved.len() == before {
                    return Err(VimFault::InvalidArgument { property: "objectSet.selectSet.name".to_owned() });
                }
            }
        }
    }
    Ok(resolved)
}

/// A selection that is not resolved yet.
enum Link {
    To(usize),
    Named(String),
}

#[derive(Default)]
struct SelectionReader {
    traversals: Vec<Traversal>,
    names: Vec<Option<String>>,
    links: Vec<Vec<Link>>,
}

impl SelectionReader {
    /// The selections directly below an element. The document's depth is bounded, and therefore this recursion too.
    fn read(&mut self, element: &Element) -> Result<Vec<Link>, VimFault> {
        element.children_named("selectSet").map(|select| self.read_one(select)).collect()
    }

    fn read_one(&mut self, select: &Element) -> Result<Link, VimFault> {
        let wrong = |field: &str| VimFault::InvalidArgument { property: format!("objectSet.selectSet.{field}") };
        let name = select.child_text("name").filter(|name| !name.is_empty()).map(str::to_owned);
        let Some(path) = select.child_text("path") else {
            return name.map(Link::Named).ok_or_else(|| wrong("name"));
        };
        let type_name = select.child_text("type").unwrap_or_default().to_owned();
        let path = Path::parse(path)
            .filter(|parsed| schema::has_property(&type_name, &parsed.property))
            .ok_or_else(|| VimFault::InvalidProperty(path.to_owned()))?;
        let index = self.traversals.len();
        let skip = is_true(select.child("skip"));
        self.traversals.push(Traversal { type_name, path, skip, next: Vec::new() });
        self.names.push(name);
        self.links.push(Vec::new());
        self.links[index] = self.read(select)?;
        Ok(Link::To(index))
    }
}

pub(crate) fn is_true(element: Option<&Element>) -> bool {
    element.is_some_and(|element| matches!(element.text.trim(), "true" | "1"))
}
