//! Rule records, which everyone may write who may write ConfigMaps.

use hostile::{Memory, PeakAlloc, Target, alone, attack};

#[global_allocator]
static MEMORY: PeakAlloc = hostile::MEMORY;

#[test]
fn number_10_no_record_is_dangerous() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/records");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("records").map(|entry| entry.expect("a file").path()).collect();
    // A record of a newer version is refused.
    files.retain(|file| !file.ends_with("newer.json"));
    files.sort();
    let samples: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).expect("a record")).collect();
    let words =
        ["\"version\":1", "\"version\":2", "\"rules\":{}", "\"sort\":\"apart\"", "\"made\":", "\"restored\":true"];
    let target = Target {
        name: "record",
        samples: &samples,
        words: &words,
        memory: Memory { fixed_bytes: 256 << 10, bytes_per_byte: 32 },
    };
    attack(&alone(), &target, |input| {
        let text = std::str::from_utf8(input.bytes);
        let read = text.ok().and_then(|text| drs::record::from_text(text).ok());
        // What is read is written in a form that can be read again.
        let again = read.as_ref().map(|rules| drs::record::from_text(&drs::record::to_text(rules)));
        assert_eq!(again.and_then(Result::ok), read);
        read.is_some()
    });
}
