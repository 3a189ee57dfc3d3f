"""What tests of alerts take from those of validation: a verdict on real tables."""

from tests.components.validation.conftest import judge as judge
