use super::{LONGEST, lines};

fn copied(text: &[u8]) -> Vec<u8> {
    let mut copied = Vec::new();
    lines(text, "[3] ", &mut copied).expect("memory can be read");
    copied
}

#[test]
fn every_line_has_its_rank_and_an_end() {
    assert_eq!(copied(b""), b"");
    assert_eq!(copied(b"a\n\n\xff\r\nno newline"), b"[3] a\n[3] \n[3] \xff\r\n[3] no newline\n");
}

#[test]
fn lines_without_an_end_are_printed_in_parts() {
    let longest = usize::try_from(LONGEST).expect("a length");
    let text = copied(&vec![b'x'; 2 * longest + 5]);
    let lengths: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
    assert_eq!(lengths, [longest + 5, longest + 5, 10]);
}
