//! Small damage to an input, as a fuzzer does it.

use rand::RngExt as _;

use crate::targets::resp::value_end;
use rand::rngs::StdRng;

/// Longest input that a mutation makes, in bytes.
const BYTES_MAX: usize = 16 * 1024;

/// What is put in: numbers at the edges of their types, and what the formats at hand give a meaning.
const PIECES: &[&[u8]] = &[
    b"",
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n",
    b"-1",
    b"0",
    b"4294967295",
    b"9007199254740992",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"1e400",
    b"NaN",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*1\r\n",
    b"*1073741824\r\n",
    b"$1073741824\r\n",
    b"%1\r\n+a\r\n+b\r\n",
    b"|1\r\n+a\r\n+b\r\n",
    b">1\r\n+a\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",inf\r\n",
    b"(12345678901234567890\r\n",
    b":9223372036854775807\r\n",
    b":-9223372036854775808\r\n",
    b"+OK\r\n",
    b"-NOSCRIPT no\r\n",
    b"-WRONGTYPE no\r\n",
    b"-OOM no\r\n",
    b"-READONLY no\r\n",
    b"-NOGROUP no\r\n",
    b"-ERR \xff\r\n",
    b"-\r\n",
    b"{",
    b"}",
    b"[[[[[[[[",
    b"\"",
    b"\"\\ud800\"",
    b"\\u0000",
    b"${A}",
    b"${A:-",
    b"'''",
    b"redis://a:b@c",
    b"payload={}",
    b"sequence=1",
    b"reason=r",
    b"receipt=0/1-1",
    b"2:id2:e1",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x01\x00",
];

/// Whole values that take the place of another one in an answer of Redis.
const VALUES: &[&[u8]] = &[
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"$0\r\n\r\n",
    b":0\r\n",
    b":-1\r\n",
    b":9223372036854775807\r\n",
    b":-9223372036854775808\r\n",
    b"$19\r\n9223372036854775807\r\n",
    b"$20\r\n-9223372036854775808\r\n",
    b"$20\r\n18446744073709551615\r\n",
    b"$5\r\n1e308\r\n",
    b"$16\r\n9007199254740992\r\n",
    b"$41\r\n18446744073709551615-18446744073709551615\r\n",
    b"$10\r\n4294967295\r\n",
    b"$3\r\n0-0\r\n",
    b"$1\r\n-\r\n",
    b"$2\r\n\xff\xfe\r\n",
    b"+OK\r\n",
    b"*1\r\n*1\r\n*1\r\n*1\r\n$1\r\na\r\n",
    b"*2\r\n$3\r\n1-1\r\n*-1\r\n",
    b"-NOSCRIPT no\r\n",
    b"-WRONGTYPE no\r\n",
    b"-OOM no\r\n",
    b"-READONLY no\r\n",
    b"-NOGROUP no\r\n",
    b"%1\r\n+a\r\n+b\r\n",
];

/// `input` with one to six changes; some take a part of `other`.
pub(crate) fn mutate(input: &[u8], other: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.random_range(1..=6) {
        change(&mut bytes, other, random);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut StdRng) {
    let from = random.random_range(0..=bytes.len());
    let to = (from + random.random_range(0..=16)).min(bytes.len());
    match random.random_range(0..10) {
        0 => {
            bytes.drain(from..to);
        }
        1 => {
            let piece = PIECES[random.random_range(0..PIECES.len())];
            bytes.splice(from..from, piece.iter().copied());
        }
        2 => {
            let piece = PIECES[random.random_range(0..PIECES.len())];
            bytes.splice(from..to, piece.iter().copied());
        }
        3 => {
            if let Some(byte) = bytes.get_mut(from) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        4 => {
            if let Some(byte) = bytes.get_mut(from) {
                *byte = random.random();
            }
        }
        5 => {
            let copied: Vec<u8> = bytes[from..to].repeat(random.random_range(1..=64));
            bytes.splice(to..to, copied);
        }
        6 => {
            let begin = random.random_range(0..=other.len());
            let end = (begin + random.random_range(0..=64)).min(other.len());
            bytes.splice(from..from, other[begin..end].iter().copied());
        }
        7 => bytes.truncate(from),
        _ => {
            let lines =
                bytes.windows(2).enumerate().filter(|(_, pair)| *pair == b"\r\n").map(|(at, _)| at + 2);
            let values: Vec<usize> = lines.filter(|&at| value_end(&bytes[at..]).is_some()).collect();
            if !values.is_empty() {
                let at = values[random.random_range(0..values.len())];
                let end = at + value_end(&bytes[at..]).unwrap_or(0);
                bytes.splice(at..end, VALUES[random.random_range(0..VALUES.len())].iter().copied());
            }
        }
    }
}
