//! XML: a small tree for responses, a writer for requests.
//!
//! Parsing is namespace-aware where it matters: `xsi:type` is recognised by its namespace, with any prefix, and
//! distinguished from the plain `type` of an object reference. Elements are identified by their local names.
//!
//! Bounds: depth, and the number of elements in memory. Elements that a caller takes while the document is read count only
//! until then. Entities other than the five of XML are rejected.

use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::{NsReader, XmlVersion};

use crate::ManagedObject;

const DEPTH_MAX: usize = 64;
/// About 200 MB at most. The settings of a cluster with thousands of VMs are a tenth of it.
const ELEMENTS_MAX: usize = 1_000_000;
const XSI: &str = "http://www.w3.org/2001/XMLSchema-instance";

#[derive(Debug, thiserror::Error)]
pub enum XmlError {
    #[error("not well-formed: {0}")]
    Malformed(String),
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("more than {ELEMENTS_MAX} elements")]
    TooMany,
    #[error("no element at all")]
    Empty,
}

/// One element with its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    /// `xsi:type` without its prefix.
    pub xsi_type: Option<String>,
    /// The attribute `type` of an object reference.
    pub reference_kind: Option<String>,
    pub text: String,
    pub children: Vec<Element>,
}

/// The elements that are being read, the innermost last.
struct Open<'a> {
    elements: Vec<Element>,
    /// How many elements are in memory.
    held: usize,
    /// Elements of this name are taken when they are complete.
    taken: Option<&'a str>,
    /// The depth of the one that is being read, and how many elements were held before it.
    taking: Option<(usize, usize)>,
}

impl Open<'_> {
    fn begin(&mut self, element: Element) -> Result<(), XmlError> {
        if self.elements.len() == DEPTH_MAX {
            return Err(XmlError::TooDeep);
        }
        if self.held == ELEMENTS_MAX {
            return Err(XmlError::TooMany);
        }
        if self.taking.is_none() && self.taken == Some(element.name.as_str()) {
            self.taking = Some((self.elements.len(), self.held));
        }
        self.held += 1;
        self.elements.push(element);
        Ok(())
    }

    /// Returns the root when it is complete.
    fn end(&mut self, take: &mut impl FnMut(Element)) -> Result<Option<Element>, XmlError> {
        let element = self.elements.pop().ok_or_else(|| XmlError::Malformed("unexpected end".to_owned()))?;
        if let Some((depth, held)) = self.taking
            && depth == self.elements.len()
        {
            self.taking = None;
            self.held = held;
            take(element);
            return Ok(None);
        }
        match self.elements.last_mut() {
            Some(parent) => parent.children.push(element),
            None => return Ok(Some(element)),
        }
        Ok(None)
    }

    fn text(&mut self, text: &str) {
        if let Some(element) = self.elements.last_mut() {
            element.text.push_str(text);
        }
    }
}

impl Element {
    #[cfg(test)]
    pub fn parse(document: &str) -> Result<Element, XmlError> {
        Element::parse_taking(document, None, |_| ())
    }

    /// Reads a document. Elements with the name `taken`, except those within one, go to `take` as soon as they are
    /// complete, and are not in the result.
    pub fn parse_taking(
        document: &str,
        taken: Option<&str>,
        mut take: impl FnMut(Element),
    ) -> Result<Element, XmlError> {
        let malformed = |error: &dyn std::fmt::Display| XmlError::Malformed(error.to_string());
        let mut reader = NsReader::from_str(document);
        let mut open = Open { elements: Vec::new(), held: 0, taken, taking: None };
        let mut is_empty = true;
        loop {
            match reader.read_event().map_err(|error| malformed(&error))? {
                Event::Start(start) => {
                    is_empty = false;
                    open.begin(begin(&reader, &start)?)?;
                }
                Event::Empty(start) => {
                    is_empty = false;
                    open.begin(begin(&reader, &start)?)?;
                    if let Some(root) = open.end(&mut take)? {
                        return Ok(root);
                    }
                }
                Event::End(_) => {
                    if let Some(root) = open.end(&mut take)? {
                        return Ok(root);
                    }
                }
                Event::Text(text) => open.text(&text.xml_content(XmlVersion::Implicit1_0)),
                Event::CData(text) => open.text(&text.xml_content(XmlVersion::Implicit1_0)),
                Event::GeneralRef(reference) => {
                    let name = reference.xml_content(XmlVersion::Implicit1_0);
                    match reference.resolve_char_ref().map_err(|error| malformed(&error))? {
                        Some(character) => open.text(character.encode_utf8(&mut [0; 4])),
                        None => open.text(
                            quick_xml::escape::resolve_predefined_entity(&name)
                                .ok_or_else(|| XmlError::Malformed(format!("unknown entity {name}")))?,
                        ),
                    }
                }
                Event::Eof if is_empty => return Err(XmlError::Empty),
                Event::Eof => return Err(XmlError::Malformed("truncated".to_owned())),
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::DocType(_) => (),
            }
        }
    }

    /// The first child with this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The same, moved out of its parent.
    #[must_use]
    pub fn take_child(&mut self, name: &str) -> Option<Element> {
        self.children.iter_mut().find(|child| child.name == name).map(std::mem::take)
    }

    /// The element at a path of names: `a.b.c`.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&Element> {
        path.split('.').try_fold(self, |element, name| element.child(name))
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of the element at a path, if it exists.
    #[must_use]
    pub fn text_at(&self, path: &str) -> Option<&str> {
        self.at(path).map(|element| element.text.trim())
    }

    /// The parsed value at a path: a number or a boolean.
    #[must_use]
    pub fn value_at<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text_at(path)?.parse().ok()
    }

    /// This element as a reference to a managed object.
    #[must_use]
    pub fn reference(&self) -> Option<ManagedObject> {
        let id = self.text.trim();
        let kind = self.reference_kind.as_deref()?;
        (!id.is_empty()).then(|| ManagedObject::new(kind, id))
    }
}

fn begin(reader: &NsReader<&[u8]>, start: &BytesStart<'_>) -> Result<Element, XmlError> {
    let mut element = Element { name: start.local_name().as_ref().to_owned(), ..Element::default() };
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| XmlError::Malformed(error.to_string()))?;
        let (namespace, name) = reader.resolver().resolve_attribute(attribute.key);
        if name.as_ref() != "type" {
            continue;
        }
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|error| XmlError::Malformed(error.to_string()))?
            .into_owned();
        if namespace == ResolveResult::Bound(Namespace(XSI)) {
            element.xsi_type = Some(value.rsplit(':').next().unwrap_or_default().to_owned());
        } else if namespace == ResolveResult::Unbound {
            element.reference_kind = Some(value);
        }
    }
    Ok(element)
}

/// Writes elements in the given order, because the vSphere API requires the order of the schema.
#[derive(Debug, Default)]
pub struct Writer {
    document: String,
}

impl Writer {
    #[must_use]
    pub fn new() -> Writer {
        Writer::default()
    }

    /// `<name>text</name>`.
    pub fn text(&mut self, name: &str, text: &str) -> &mut Writer {
        self.element(name, None, |writer| writer.document.push_str(&quick_xml::escape::escape(text)))
    }

    /// A number or a boolean.
    #[allow(clippy::needless_pass_by_value)]
    pub fn value(&mut self, name: &str, value: impl ToString) -> &mut Writer {
        self.text(name, &value.to_string())
    }

    /// A value whose type the schema does not determine: `xsi:type="xsd:int"`.
    #[allow(clippy::needless_pass_by_value)]
    pub fn typed_value(&mut self, name: &str, xsd_type: &str, value: impl ToString) -> &mut Writer {
        let value = value.to_string();
        self.element(name, Some(&format!("xsd:{xsd_type}")), |writer| {
            writer.document.push_str(&quick_xml::escape::escape(value.as_str()));
        })
    }

    /// `<name type="VirtualMachine">vm-1</name>`.
    pub fn reference(&mut self, name: &str, object: &ManagedObject) -> &mut Writer {
        let (kind, id) =
            (quick_xml::escape::escape(object.kind.as_str()), quick_xml::escape::escape(object.id.as_str()));
        self.document.push_str(&format!("<{name} type=\"{kind}\">{id}</{name}>"));
        self
    }

    /// A reference where the schema allows any type: `xsi:type="ManagedObjectReference"`.
    pub fn typed_reference(&mut self, name: &str, object: &ManagedObject) -> &mut Writer {
        let (kind, id) =
            (quick_xml::escape::escape(object.kind.as_str()), quick_xml::escape::escape(object.id.as_str()));
        self.document.push_str(&format!("<{name} xsi:type=\"ManagedObjectReference\" type=\"{kind}\">{id}</{name}>"));
        self
    }

    /// An element with child elements.
    pub fn nest(&mut self, name: &str, inside: impl FnOnce(&mut Writer)) -> &mut Writer {
        self.element(name, None, inside)
    }

    /// An element with child elements whose type the schema does not determine: `xsi:type="TraversalSpec"`.
    pub fn nest_typed(&mut self, name: &str, xsi_type: &str, inside: impl FnOnce(&mut Writer)) -> &mut Writer {
        self.element(name, Some(xsi_type), inside)
    }

    fn element(&mut self, name: &str, xsi_type: Option<&str>, inside: impl FnOnce(&mut Writer)) -> &mut Writer {
        self.document.push('<');
        self.document.push_str(name);
        if let Some(xsi_type) = xsi_type {
            self.document.push_str(" xsi:type=\"");
            self.document.push_str(xsi_type);
            self.document.push('"');
        }
        self.document.push('>');
        inside(self);
        self.document.push_str("</");
        self.document.push_str(name);
        self.document.push('>');
        self
    }

    #[must_use]
    pub fn finish(self) -> String {
        self.document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_distinguished_from_reference_kinds_with_any_prefix() {
        let document = r#"<a xmlns:_XMLSchema-instance="http://www.w3.org/2001/XMLSchema-instance"
            xmlns:o="urn:other"><val _XMLSchema-instance:type="p:ManagedObjectReference" type="HostSystem">host-1</val>
            <val o:type="not this" type="Folder">group-1</val></a>"#;
        let root = Element::parse(document).unwrap();
        let first = root.child("val").unwrap();
        assert_eq!(first.xsi_type.as_deref(), Some("ManagedObjectReference"));
        assert_eq!(first.reference(), Some(ManagedObject::new("HostSystem", "host-1")));
        assert_eq!(root.children[1].xsi_type, None);
        assert_eq!(root.children[1].reference(), Some(ManagedObject::new("Folder", "group-1")));
    }

    #[test]
    fn text_is_unescaped_and_paths_are_followed() {
        let root =
            Element::parse("<a><b><c>&lt;x&gt; &amp; &#65;<![CDATA[<y>]]></c><n>7</n><t>true</t></b></a>").unwrap();
        assert_eq!(root.text_at("b.c"), Some("<x> & A<y>"));
        assert_eq!(root.value_at::<i32>("b.n"), Some(7));
        assert_eq!(root.value_at::<bool>("b.t"), Some(true));
        assert_eq!(root.text_at("b.none"), None);
    }

    #[test]
    fn hostile_documents_are_rejected() {
        let deep = "<a>".repeat(100) + &"</a>".repeat(100);
        for (document, expected) in [
            (deep.as_str(), "nested deeper"),
            ("", "no element"),
            ("<a><b></a>", "not well-formed"),
            ("<a>", "truncated"),
            ("<a>&bomb;</a>", "unknown entity"),
        ] {
            let error = Element::parse(document).unwrap_err().to_string();
            assert!(error.contains(expected), "{document:.20}: {error}");
        }
    }

    #[test]
    fn number_10_elements_in_memory_are_bounded_and_those_taken_do_not_count() {
        let document = |count: usize| format!("<a>{}</a>", "<p><b/></p>".repeat(count));
        let many = document(ELEMENTS_MAX / 2);
        assert!(matches!(Element::parse(&many), Err(XmlError::TooMany)));
        let mut taken = 0;
        let root = Element::parse_taking(&many, Some("p"), |part| {
            assert_eq!((part.name.as_str(), part.children.len()), ("p", 1));
            taken += 1;
        });
        assert_eq!((root.unwrap(), taken), (Element { name: "a".to_owned(), ..Element::default() }, ELEMENTS_MAX / 2));
        // One within another belongs to it.
        let nested = "<a><p><p>inner</p></p><c/></a>";
        let mut parts = Vec::new();
        let root = Element::parse_taking(nested, Some("p"), |part| parts.push(part)).unwrap();
        assert_eq!((parts.len(), parts[0].text_at("p"), root.children.len()), (1, Some("inner"), 1));
        let large = format!("<a><p>{}</p></a>", "<b/>".repeat(ELEMENTS_MAX));
        assert!(matches!(Element::parse_taking(&large, Some("p"), |_| ()), Err(XmlError::TooMany)));
    }

    #[test]
    fn written_documents_can_be_parsed_again() {
        let mut writer = Writer::new();
        writer.nest("spec", |spec| {
            spec.text("name", "a<b>&\"c\"")
                .value("enabled", true)
                .reference("vm", &ManagedObject::new("VirtualMachine", "vm-1"));
        });
        let root = Element::parse(&writer.finish()).unwrap();
        assert_eq!(root.text_at("name"), Some("a<b>&\"c\""));
        assert_eq!(root.child("vm").unwrap().reference(), Some(ManagedObject::new("VirtualMachine", "vm-1")));
    }
}
