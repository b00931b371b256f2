//! Any bytes are a stored answer or an error; what is read is written as it was.

#![no_main]

use bytes::Bytes;
use idempotency::record::Answer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(answer) = Answer::decode(Bytes::copy_from_slice(bytes)) else { return };
    let again = answer.encode();
    let decoded = Answer::decode(again.into()).expect("what was written is read");
    assert!(decoded == answer);
});
