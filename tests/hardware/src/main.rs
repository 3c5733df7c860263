//! The program `hardware`.

fn main() -> anyhow::Result<()> {
    hardware_tests::run()
}
