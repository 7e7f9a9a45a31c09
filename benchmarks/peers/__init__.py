"""Other engines, run as their own documentation runs them: in an environment and in processes of their own."""
