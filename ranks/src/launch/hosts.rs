//! Slurm's lists of hosts, such as `node[03-05,7],gpu1`.

/// Returns the first host of a list; `None` if the list is malformed.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        let end = rest.find(['[', ',', ']']).unwrap_or(rest.len());
        host += &rest[..end];
        match rest[end..].chars().next() {
            None | Some(',') => break,
            Some('[') => {
                let (numbers, after) = rest[end + 1..].split_once(']')?;
                // Leading zeros belong to the name.
                let first = numbers.split([',', '-']).next().unwrap_or_default();
                if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                host += first;
                rest = after;
            }
            Some(_) => return None,
        }
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_name)).then_some(host)
}
