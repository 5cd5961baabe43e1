package nccl

// roleVariable tells the test binary to be something else than tests.
const roleVariable = "NCCL_TEST_ROLE"

func play(role string) int { return 2 }
