"""The program killed at random moments, disks that are full or cannot be written to, and logs that end in the middle."""
