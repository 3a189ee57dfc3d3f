"""What tests of alerts take from those of validation: a verdict on real tables."""

from tests.data.validation.conftest import judge as judge
