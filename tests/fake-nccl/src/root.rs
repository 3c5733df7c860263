//! The first rank's thread, which adds what the ranks send.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Type of numbers, by `ncclDataType_t`.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    F32,
    Bf16,
}

impl Number {
    pub(crate) fn new(data_type: u8) -> Option<Self> {
        match data_type {
            7 => Some(Self::F32),
            9 => Some(Self::Bf16),
            _ => None,
        }
    }

    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    fn read(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F32 => f32::from_le_bytes(bytes.try_into().expect("four bytes")),
            Self::Bf16 => f32::from_bits(u32::from(u16::from_le_bytes(bytes.try_into().expect("two bytes"))) << 16),
        }
    }

    fn write(self, number: f32, bytes: &mut [u8]) {
        match self {
            Self::F32 => bytes.copy_from_slice(&number.to_le_bytes()),
            // Tests have numbers that bf16 has, too.
            Self::Bf16 => bytes.copy_from_slice(&((number.to_bits() >> 16) as u16).to_le_bytes()),
        }
    }
}

/// Opens the port that an identifier names.
pub(crate) fn open() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        let Ok(mut ranks) = gather(&listener) else { return };
        while sum(&mut ranks).is_ok() {}
        // The connections stay open, so that the ranks wait for what never comes.
        loop {
            thread::park();
        }
    });
    Ok(address)
}

/// Connects to the first rank, and waits for the others.
pub(crate) fn join(address: SocketAddr, rank: u32, ranks: u32) -> io::Result<TcpStream> {
    let mut connection = TcpStream::connect(address)?;
    connection.write_all(&[rank.to_le_bytes(), ranks.to_le_bytes()].concat())?;
    Ok(connection)
}

/// Connections of all ranks, in their order.
fn gather(listener: &TcpListener) -> io::Result<Vec<TcpStream>> {
    let mut joined = Vec::new();
    loop {
        let (mut connection, _) = listener.accept()?;
        let mut numbers = [[0; 4]; 2];
        connection.read_exact(numbers.as_flattened_mut())?;
        let [rank, ranks] = numbers.map(u32::from_le_bytes);
        joined.push((rank, connection));
        if joined.len() == ranks as usize {
            joined.sort_by_key(|(rank, _)| *rank);
            let mut ranks: Vec<_> = joined.into_iter().map(|(_, connection)| connection).collect();
            ranks.iter_mut().try_for_each(|rank| rank.write_all(&[1]))?;
            return Ok(ranks);
        }
    }
}

/// One sum over all ranks.
fn sum(ranks: &mut [TcpStream]) -> io::Result<()> {
    let mut sums: Vec<f32> = Vec::new();
    let mut last = (Number::F32, 0);
    for rank in &mut *ranks {
        let (number, bytes) = receive(rank)?;
        let numbers = bytes.chunks_exact(number.bytes()).map(|bytes| number.read(bytes));
        if sums.is_empty() {
            sums = numbers.collect();
        } else {
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        last = (number, bytes.len());
    }
    let (number, length) = last;
    let mut reply = vec![0; length];
    reply.chunks_exact_mut(number.bytes()).zip(&sums).for_each(|(bytes, sum)| number.write(*sum, bytes));
    ranks.iter_mut().try_for_each(|rank| rank.write_all(&reply))
}

/// Type and bytes that a rank sent.
fn receive(rank: &mut TcpStream) -> io::Result<(Number, Vec<u8>)> {
    let mut header = [0; 9];
    rank.read_exact(&mut header)?;
    let length = u64::from_le_bytes(*header.last_chunk().expect("nine bytes"));
    let mut bytes = vec![0; usize::try_from(length).expect("a length")];
    rank.read_exact(&mut bytes)?;
    Ok((Number::new(header[0]).expect("a checked type"), bytes))
}

/// Sends this rank's numbers, and waits for the sums.
pub(crate) fn exchange(connection: &mut TcpStream, data_type: u8, bytes: &mut [u8]) -> io::Result<()> {
    connection.write_all(&[data_type])?;
    connection.write_all(&(bytes.len() as u64).to_le_bytes())?;
    connection.write_all(bytes)?;
    connection.read_exact(bytes)
}
