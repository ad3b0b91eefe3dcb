use super::*;

#[test]
fn an_open_file_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Gguf>();
}

#[test]
fn kinds_that_are_not_read_have_their_names() {
    assert_eq!(Kind::from_id(12).to_string(), "Q4_K");
    assert_eq!(Kind::from_id(23).to_string(), "IQ4_XS");
    assert!(Kind::from_id(12).is_read() && !Kind::from_id(23).is_read());
    assert_eq!(Kind::from_id(999).to_string(), "number 999 (unknown)");
    assert_eq!(Kind::from_id(999).block(), None);
}
