use super::{THROTTLES, Throttle, throttle_key};

#[test]
fn keys_are_those_of_recordings() {
    for reason in THROTTLES.into_iter().map(|(reason, ..)| reason).chain([Throttle::Unknown]) {
        assert_eq!(serde_json::to_value(reason).expect("JSON"), throttle_key(reason));
    }
}
