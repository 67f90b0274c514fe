//! SOAP envelopes of requests and responses.

use crate::error::Fault;
use crate::xml::{Element, Writer, XmlError};
use crate::{ManagedObject, error};

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum SoapAnswer {
    /// The `<MethodResponse>` element.
    Returned(Element),
    Fault(Fault),
}

/// A request: the method's element with `_this` and the parameters.
#[must_use]
pub fn envelope(method: &str, this: &ManagedObject, parameters: impl FnOnce(&mut Writer)) -> String {
    let mut body = Writer::new();
    body.reference("_this", this);
    parameters(&mut body);
    let body = body.finish();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <Envelope xmlns=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\
         <Body><{method} xmlns=\"urn:vim25\">{body}</{method}></Body></Envelope>"
    )
}

#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error(transparent)]
    Xml(#[from] XmlError),
    #[error("the response is a <{0}>, not a SOAP envelope")]
    NotAnEnvelope(String),
    #[error("the body of the SOAP envelope is empty")]
    EmptyBody,
}

/// Reads a response. Its elements with the name `taken` go to `take` one by one, and are not in the result.
pub fn answer(document: &str, taken: Option<&str>, take: impl FnMut(Element)) -> Result<SoapAnswer, AnswerError> {
    let mut root = Element::parse_taking(document, taken, take)?;
    if root.name != "Envelope" {
        return Err(AnswerError::NotAnEnvelope(root.name));
    }
    let body = root.take_child("Body").ok_or(AnswerError::EmptyBody)?;
    let content = body.children.into_iter().next().ok_or(AnswerError::EmptyBody)?;
    if content.name == "Fault" {
        return Ok(SoapAnswer::Fault(soap_fault(&content)));
    }
    Ok(SoapAnswer::Returned(content))
}

/// Parses a `<soapenv:Fault>`. Its detail contains one element whose type is the fault.
fn soap_fault(element: &Element) -> Fault {
    let message = element.text_at("faultstring").unwrap_or_default();
    match element.child("detail").and_then(|detail| detail.children.first()) {
        Some(detail) => fault(detail, message),
        None => {
            Fault { kind: element.text_at("faultcode").unwrap_or("SoapFault").to_owned(), ..unnamed_fault(message) }
        }
    }
}

/// A fault object, from a SOAP fault's detail or from a task's error.
#[must_use]
pub fn fault(element: &Element, message: &str) -> Fault {
    // `<NotAuthenticatedFault xsi:type="NotAuthenticated">`. Without a type, the element's name gives the fault.
    let kind = element.xsi_type.clone().unwrap_or_else(|| {
        element.name.strip_suffix("Fault").filter(|name| !name.is_empty()).unwrap_or(&element.name).to_owned()
    });
    Fault {
        kind,
        message: message.trim().to_owned(),
        privilege: element.text_at("privilegeId").map(str::to_owned),
        object: element.child("object").or_else(|| element.child("obj")).and_then(Element::reference),
        property: element.text_at("invalidProperty").or_else(|| element.text_at("name")).map(str::to_owned),
    }
}

/// A failure of which only a message is known.
#[must_use]
pub fn unnamed_fault(message: &str) -> Fault {
    Fault { kind: "MethodFault".to_owned(), message: message.to_owned(), privilege: None, object: None, property: None }
}

/// Parses a `LocalizedMethodFault`, for example a task's `info.error`.
#[must_use]
pub fn localized_fault(element: &Element) -> error::Fault {
    let message = element.text_at("localizedMessage").unwrap_or_default();
    match element.child("fault") {
        Some(inner) => fault(inner, message),
        None => fault(element, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_identified_by_its_type_even_if_the_type_is_unknown() {
        for (detail, kind) in [
            (
                r#"<NotAuthenticatedFault xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="NotAuthenticated"/>"#,
                "NotAuthenticated",
            ),
            ("<InvalidLoginFault/>", "InvalidLogin"),
            ("<NeverHeardOfFault><x>1</x></NeverHeardOfFault>", "NeverHeardOf"),
        ] {
            let document = format!(
                "<e:Envelope xmlns:e=\"x\"><e:Body><e:Fault><faultcode>ServerFaultCode</faultcode>\
                 <faultstring>what happened</faultstring><detail>{detail}</detail></e:Fault></e:Body></e:Envelope>"
            );
            let SoapAnswer::Fault(fault) = answer(&document, None, |_| ()).unwrap() else {
                panic!("a fault was expected")
            };
            assert_eq!((fault.kind.as_str(), fault.message.as_str()), (kind, "what happened"));
        }
    }

    #[test]
    fn a_document_that_is_not_an_envelope_is_rejected() {
        for document in ["<html><body>busy</body></html>", "<Envelope><Body></Body></Envelope>", "plain text"] {
            assert!(answer(document, None, |_| ()).is_err(), "{document}");
        }
    }
}
